"""An SQLite database for a journal: open in a single process, with atomic changes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Generator
from pathlib import Path

from remuda.config.errors import Error
from remuda.storage.atomic import replacing

BUSY_S = 2.0
"""Seconds to wait for another process with the open file, before an error."""
STATEMENTS = 256
"""Number of cached prepared statements."""
_SQLITE_SHARED_FIRST, _SQLITE_SHARED_BYTES = 0x40000002, 510
"""Bytes locked by SQLite for reading, part of its file format: a process with an open journal locks all of them."""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class JournalError(Error):
    """The journal cannot be opened, read or written, with the reason."""


class JournalDamagedError(JournalError):
    """The content of the journal cannot be read any more."""


def open_database(path: Path, tables: str) -> sqlite3.Connection:
    """Open a database for this process alone, and make missing `tables`. Any of its threads may use the connection, one
    at a time. Raises JournalError."""
    try:
        _make_private(path)
        db = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
        )
        try:
            # Exclusive before WAL: no shared memory file, which network file systems do not offer.
            db.execute("pragma locking_mode = exclusive")
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.executescript(f"begin immediate; {tables} commit;")
        except (sqlite3.Error, UnicodeDecodeError):
            db.close()
            raise
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's own words may quote the damaged file
        if isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", None) in _DAMAGE:
            raise JournalDamagedError(f"{path} is damaged: {error}") from error
        raise JournalError(f"{path} cannot be opened: {error}") from error
    return db


class Database:
    """An open database, and its files."""

    def __init__(self, path: Path, tables: str) -> None:
        """Open the database; see open_database."""
        self._path, self._tables = path, tables
        self.connection = open_database(path, tables)
        self._files = self._found()
        """Device and inode of each open file, by the end of its name; empty while closed."""
        self._disturbed = False

    def put_back(self) -> str | None:
        """Write a complete copy under the database's name, if an open file was removed or replaced. Returns a text
        about that, or None. Raises JournalError or OSError without loss; call again."""
        found = self._found()
        if any(file not in (None, found[end]) for end, file in self._files.items()):
            self._disturbed = True
            self._replace()
        if not self._files:
            self.connection = open_database(self._path, self._tables)
        self._files, disturbed, self._disturbed = self._found(), self._disturbed, False
        return f"{self._path} was removed or replaced: a complete copy is back in its place" if disturbed else None

    def _replace(self) -> None:
        with replacing(self._path, durable=True) as copy:
            self._copy(copy)
            for end, file in self._found().items():
                if file not in (None, self._files[end]):  # the file of somebody else is kept
                    os.replace(f"{self._path}{end}", f"{self._path}.replaced{end}")
        self.connection.close()
        Path(f"{self._path}-wal").unlink(missing_ok=True)  # all of it is in the copy
        self._files = {}

    def _copy(self, path: Path) -> None:
        try:
            _make_private(path)
            with contextlib.closing(sqlite3.connect(path)) as copy:
                self.connection.backup(copy)
        except sqlite3.Error as error:
            raise JournalError(f"{self._path} was removed or replaced, and cannot be put back: {error}") from error

    def _found(self) -> dict[str, tuple[int, int] | None]:
        return {end: _file_at(f"{self._path}{end}") for end in ("", "-wal")}


def _file_at(path: str) -> tuple[int, int] | None:
    """Return device and inode of the file at `path`; None without a file."""
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def _make_private(path: Path) -> None:
    """Make the file private: it contains the run's config, possibly with secrets."""
    with contextlib.suppress(OSError):  # it is there, or SQLite will say what is wrong
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


@contextlib.contextmanager
def committing(db: sqlite3.Connection, path: Path) -> Generator[None]:
    """Commit all writes of the body to the database at `path`, or none; a nested block joins the outer transaction.
    Raises JournalError if the disk refuses."""
    try:
        with contextlib.nullcontext() if db.in_transaction else _transaction(db):
            yield
    except sqlite3.Error as error:
        raise JournalError(f"{path} cannot be written: {error}") from error


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    try:
        db.execute("begin")
        yield
        db.execute("commit")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("rollback")
        raise


def is_open(path: Path) -> bool:
    """True if any process, also on another machine, has the journal open, so that its run is running. Changes nothing.

    Never call this in the process with the open journal: POSIX would release that process's locks.
    """
    try:
        with path.open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, _SQLITE_SHARED_BYTES, _SQLITE_SHARED_FIRST)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return True
        raise
    return False
