"""An SQLite database for a journal: one process alone has it open, and each change is committed as a whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Generator
from pathlib import Path

from remuda.config.errors import Error

BUSY_S = 2.0
"""How long to wait for another process that has the file open, before an error is raised."""
STATEMENTS = 256
"""The number of prepared statements that are kept."""
_SQLITE_SHARED_FIRST, _SQLITE_SHARED_BYTES = 0x40000002, 510
"""The bytes that SQLite locks for reading, part of its file format: a process that has a journal open locks all of
them."""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class JournalError(Error):
    """The journal cannot be opened, read or written; the text says which and why."""


class JournalDamagedError(JournalError):
    """The content of the journal cannot be read any more."""


def open_database(path: Path, tables: str) -> sqlite3.Connection:
    """Open a database for this process alone, made with `tables` if missing; any of its threads may use it, one at a
    time. Raises JournalError."""
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


def _make_private(path: Path) -> None:
    """Make the file private: a run's config is in it, which may contain secrets."""
    with contextlib.suppress(OSError):  # it is there, or SQLite will say what is wrong
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


@contextlib.contextmanager
def committing(db: sqlite3.Connection, path: Path) -> Generator[None]:
    """Commit what the body writes to the database at `path` as a whole, or not at all; within another such block, as a
    part of that. Raises JournalError if the disk refuses."""
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
    """Whether any process, also on another machine, has the journal open, so that its run is running. Changes nothing.

    Must not be called by the process that has it open: POSIX would release that process's locks.
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
