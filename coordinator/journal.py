"""The journal of one run: what a coordinator must know to go on after its process has died, in SQLite.

Everything of one turn of the coordinator's loop is one transaction, committed before anybody is answered. Without a
disk sync per commit: a killed process loses nothing, a machine that loses power may lose its last moments, and no
more than that (the file itself stays whole).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Generator
from pathlib import Path

import msgspec
import numpy as np

from remuda.buffer.index import Prioritized
from remuda.coordinator.effects import Remember
from remuda.coordinator.events import Recovered
from remuda.coordinator.memory import FORMAT, NewEpisodes, RunMemory
from remuda.wire.messages import IndexedChunk

BUSY_S = 2.0
"""How long another process may hold the file before it counts as somebody else's."""

_SQLITE_SHARED_FIRST, _SQLITE_SHARED_BYTES = 0x40000002, 510
"""The bytes that SQLite locks for reading, part of its file format: somebody has them all while a journal is open."""

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_TABLES = """
create table if not exists chunk (first_row integer primary key, body blob not null);
create table if not exists memory (id integer primary key check (id = 0), body blob not null);
create table if not exists episodes (first integer primary key, body blob not null);
create table if not exists priorities
  (id integer primary key check (id = 0), first_row integer not null, body blob not null);
"""


class JournalError(Exception):
    """The journal cannot be opened, read or written; the text says which and why."""


class JournalDamagedError(JournalError):
    """What was in the journal cannot be had any more."""


def open_database(path: Path, tables: str) -> sqlite3.Connection:
    """Open a database for this process alone, made with `tables` if missing; any of its threads may use it, one at a
    time. Raises JournalError."""
    try:
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            # Exclusive before WAL: no shared memory file, which network file systems do not offer.
            db.execute("pragma locking_mode = exclusive")
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.executescript(f"begin immediate; {tables} commit;")
        except sqlite3.Error:
            db.close()
            raise
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) in _DAMAGE:
            raise JournalDamagedError(f"{path} is damaged: {error}") from error
        raise JournalError(f"{path} cannot be opened: {error}") from error
    return db


@contextlib.contextmanager
def committing(db: sqlite3.Connection, path: Path) -> Generator[None]:
    """What the body writes to the database at `path` is committed as a whole, or not at all. Raises JournalError where
    the disk does not take it."""
    try:
        db.execute("begin")
        yield
        db.execute("commit")
    except sqlite3.Error as error:
        with contextlib.suppress(sqlite3.Error):
            db.execute("rollback")
        raise JournalError(f"{path} cannot be written: {error}") from error


def is_open(path: Path) -> bool:
    """Whether a process, wherever it is, has the journal open, and so goes on with the run. Changes nothing.

    Not to be asked by the process that has it open: its locks would be gone (POSIX has it so).
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


def open_or_begin(path: Path) -> tuple[RunJournal, Recovered | None, str | None]:
    """The journal of a run that begins or is resumed, and what is in it. A damaged one is put aside and another begun:
    the third value says so. Raises JournalError, also when another coordinator has it open."""
    try:
        journal = RunJournal(path)
        try:
            return journal, journal.read(), None
        except JournalError:
            journal.close()
            raise
    except JournalDamagedError as error:
        aside = path.with_name(f"{path.name}.damaged")
        for suffix in ("", "-wal"):  # a journal must not find the writes of another beside it
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}{suffix}", f"{aside}{suffix}")
        return RunJournal(path), None, f"{error}; it is kept as {aside.name}"


class RunJournal:
    """Owns `<run>/journal.sqlite` while it is open: nobody else can write it, or even read it."""

    def __init__(self, path: Path) -> None:
        """Open the journal, made if missing. Raises JournalError, also when another coordinator has it open."""
        self._path = path
        self._chunks = msgspec.msgpack.Decoder(IndexedChunk)
        self._episodes = msgspec.msgpack.Decoder(NewEpisodes)
        self._db = open_database(path, _TABLES)

    def write(self, remember: Remember) -> None:
        """Commit one turn's news. Raises JournalError and changes nothing when the disk does not take it."""
        encode, db = msgspec.msgpack.encode, self._db
        with committing(db, self._path):
            db.execute("insert or replace into memory values (0, ?)", (encode(remember.memory),))
            if remember.added:
                rows = [(chunk.first_row, encode(chunk)) for chunk in remember.added]
                db.executemany("insert or replace into chunk values (?, ?)", rows)
            if remember.gone:
                db.executemany("delete from chunk where first_row = ?", [(row,) for row in remember.gone])
            if remember.episodes is not None:
                db.execute("delete from episodes where first >= ?", (remember.episodes.first,))
                db.execute("insert into episodes values (?, ?)", (remember.episodes.first, encode(remember.episodes)))
            if remember.priorities is not None:
                known = remember.priorities
                values = (known.first_row, known.priorities.tobytes())
                db.execute("insert or replace into priorities values (0, ?, ?)", values)

    def read(self) -> Recovered | None:
        """All that was committed; None in a new journal. Raises JournalDamagedError when it cannot be understood, and
        JournalError when another version of Remuda has written it."""
        try:
            memory = self._db.execute("select body from memory").fetchone()
            chunks = self._db.execute("select body from chunk order by first_row").fetchall()
            episodes = self._db.execute("select body from episodes order by first").fetchall()
            priorities = self._db.execute("select first_row, body from priorities").fetchone()
            if memory is None:
                return None
            return Recovered(
                memory=self._memory(memory[0]).with_episodes(self._episodes.decode(body) for (body,) in episodes),
                chunks=tuple(self._chunks.decode(body) for (body,) in chunks),
                priorities=None if priorities is None else _prioritized(*priorities),
            )
        except (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError, LookupError) as error:
            raise JournalDamagedError(f"{self._path} is damaged: {error}") from error

    def clear(self) -> None:
        """Forget everything: the run starts over. Raises JournalError and changes nothing when the disk refuses."""
        with committing(self._db, self._path):
            for table in ("chunk", "memory", "episodes", "priorities"):
                self._db.execute(f"delete from {table}")

    def close(self) -> None:
        """Let go of the file; nothing but the one file is left. May be called again."""
        self._db.close()

    def _memory(self, body: bytes) -> RunMemory:
        format = msgspec.msgpack.decode(body)[0]
        if format != FORMAT:
            raise JournalError(
                f"{self._path} has format {format} and this version of Remuda reads {FORMAT}: "
                "resume with the version that wrote it"
            )
        return msgspec.msgpack.decode(body, type=RunMemory)


def _prioritized(first_row: int, body: bytes) -> Prioritized:
    return Prioritized(first_row, np.frombuffer(body, np.float32))
