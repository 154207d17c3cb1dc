"""The journal of a run, in SQLite: everything needed to continue after the death of its process.

In parallel mode, all changes of one turn of the coordinator's loop are one transaction, committed before any answer is
sent; in serial mode, all changes of a checkpoint. Commits are not synced to the disk: a killed process loses nothing;
a power cut may lose the last moments, and the file stays whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from remuda.buffer.index import Prioritized
from remuda.training.journal_database import Database, JournalDamagedError, JournalError, committing, open_database
from remuda.training.journal_entry import JournalEntry, Recovered
from remuda.training.league import LeagueSnapshot
from remuda.training.run_snapshot import (
    FORMAT,
    Changes,
    ExperimentSnapshot,
    HeadSnapshot,
    HourRow,
    Identity,
    Rows,
    RunSnapshot,
)
from remuda.training.snapshot import (
    AccountSnapshot,
    CallbacksSnapshot,
    CountedSnapshot,
    DeathsSnapshot,
    DispatchSnapshot,
    FailuresSnapshot,
    FlowSnapshot,
    LeaseBookSnapshot,
    LeaseSnapshot,
    NewEpisodes,
    PlaceSnapshot,
    ProgressSnapshot,
    ReanalysisRow,
    ReanalysisSnapshot,
    ReplaySnapshot,
    RestSnapshot,
)
from remuda.wire.messages import IndexedChunk

ROWS_PER_STATEMENT = 64
"""Small enough for a prepared statement for each number of rows: see cached_statements."""
# msgspec finds out about a class when it is first decoded, and crashes the process where two threads do that at once.
# Each run has a thread: so it is done here, when the module is imported.
_Decoders = Mapping[str, msgspec.msgpack.Decoder[Any]]
_ROWS: _Decoders = {
    "lease": msgspec.msgpack.Decoder(LeaseSnapshot),
    "place": msgspec.msgpack.Decoder(PlaceSnapshot),
    "account": msgspec.msgpack.Decoder(AccountSnapshot),
    "counted": msgspec.msgpack.Decoder(CountedSnapshot),
    "rest": msgspec.msgpack.Decoder(RestSnapshot),
    "reanalysis": msgspec.msgpack.Decoder(ReanalysisRow),
    "hour": msgspec.msgpack.Decoder(HourRow),
}
"""Tables with a row for each lease, place, account, worker or chunk; named as in Changes."""
_PARTS: _Decoders = {
    "replay": msgspec.msgpack.Decoder(ReplaySnapshot),
    "flow": msgspec.msgpack.Decoder(FlowSnapshot),
    "leases": msgspec.msgpack.Decoder(LeaseBookSnapshot),
    "dispatch": msgspec.msgpack.Decoder(DispatchSnapshot),
    "progress": msgspec.msgpack.Decoder(ProgressSnapshot),
    "workers_failures": msgspec.msgpack.Decoder(FailuresSnapshot),
    "deaths": msgspec.msgpack.Decoder(list[DeathsSnapshot]),
    "reanalysis": msgspec.msgpack.Decoder(ReanalysisSnapshot),
    "callbacks": msgspec.msgpack.Decoder(CallbacksSnapshot),
    "league": msgspec.msgpack.Decoder(LeagueSnapshot | None),
}
"""Rows of the table `part`, named as in ExperimentSnapshot. Only parts with defaults may be missing, in journals of
earlier versions of Remuda."""
_HEAD = msgspec.msgpack.Decoder(HeadSnapshot)
_IDENTITY = msgspec.msgpack.Decoder(Identity)
_CHUNKS = msgspec.msgpack.Decoder(IndexedChunk)
_EPISODES = msgspec.msgpack.Decoder(NewEpisodes)
_OF_RUN = ("state", "reason", "stage", "failures", "wall_s", "stage_left_s", "meter", "preempted_by")
"""Fields of ExperimentSnapshot in the head."""

_PREFIX = re.compile(r"([a-z][a-z0-9_]*)?")


def _tables(prefix: str) -> str:
    return f"""
create table if not exists {prefix}chunk (first_row integer primary key, body blob not null);
create table if not exists {prefix}memory (id integer primary key check (id = 0), body blob not null);
create table if not exists {prefix}part (name text primary key, body blob not null) without rowid;
create table if not exists {prefix}lease (key integer primary key, body blob not null);
create table if not exists {prefix}place (key text primary key, body blob not null) without rowid;
create table if not exists {prefix}account (key integer primary key, body blob not null);
create table if not exists {prefix}counted (key integer primary key, body blob not null);
create table if not exists {prefix}rest (key text primary key, body blob not null) without rowid;
create table if not exists {prefix}reanalysis (key integer primary key, body blob not null);
create table if not exists {prefix}hour (key integer primary key, body blob not null);
create table if not exists {prefix}episodes (first integer primary key, body blob not null);
create table if not exists {prefix}priorities
  (id integer primary key check (id = 0), first_row integer not null, body blob not null);
"""


def is_queued(path: Path) -> bool:
    """True if a run whose journal is closed waits for workers: a coordinator opens the journal of a queued run only for
    moments. Changes nothing."""
    if path.with_name(f"{path.name}-wal").exists():
        return False  # a process has it open, or was killed while it had
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            found = [db.execute(f"select body from {_prefix(name)}memory").fetchone() for name in _policies_in(db)]
        heads = [head for (head,) in (row for row in found if row is not None)]
        if not heads:  # nothing is written before the run is accepted
            return bool(found) and any(path.parent.glob(".begun_*"))
        return all(_says_queued(head) for head in heads)
    except (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError, LookupError):
        return False  # there is none, or it is damaged


def _says_queued(head: bytes) -> bool:
    return msgspec.msgpack.decode(head)[0] == FORMAT and _HEAD.decode(head).state == "queued"


def open_for_policies(
    path: Path, policies: Sequence[str]
) -> tuple[list[tuple[RunJournal, Recovered | None]], str | None]:
    """Open the journals of the policies of a run, and read their content; a single policy has an empty name. See
    `together`. A damaged file is put aside and replaced by a new file: the last value is a text about the damage.
    Raises JournalError, also if another process has the file open."""
    try:
        journals = open_journals(path, policies)
        try:
            return [(journal, journal.read()) for journal in journals], None
        except JournalError:
            journals[0].close()
            raise
    except JournalDamagedError as error:
        aside = path.with_name(f"{path.name}.damaged")
        for suffix in ("", "-wal"):  # a journal must not find the writes of another beside it
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}{suffix}", f"{aside}{suffix}")
        return [(journal, None) for journal in open_journals(path, policies)], f"{error}; it is kept as {aside.name}"


def journaled_policies(path: Path) -> list[str]:
    """Return the sorted names of the policies in a journal; a single policy has an empty name. Raises JournalError,
    also if another process has the file open."""
    with contextlib.closing(open_database(path, "")) as db:
        try:
            return _policies_in(db)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise JournalDamagedError(f"{path} is damaged: {error}") from error


def _policies_in(db: sqlite3.Connection) -> list[str]:
    tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
    found = [re.fullmatch(r"(?:of_([a-z][a-z0-9_]*)__)?memory", name) for name in tables]
    return sorted(match[1] or "" for match in found if match is not None)


def _prefix(policy: str) -> str:
    """Return the prefix of the names of a policy's tables."""
    return f"of_{policy}__" if policy else ""


def open_journals(path: Path, policies: Sequence[str]) -> list[RunJournal]:
    """Open the journals of the policies of a run, which share a file; the first journal closes the file. Raises
    JournalError, also if another process has the file open."""
    first = RunJournal(path, policy=policies[0])
    return [first, *(RunJournal(path, policy=policy, beside=first) for policy in policies[1:])]


def read_policies(path: Path) -> dict[str, Recovered]:
    """Return the state of each policy in the journal of a run at rest; empty without a journal. Raises JournalError, as
    `open_journals`."""
    names = journaled_policies(path) if path.exists() else []
    if not names:
        return {}
    journals = open_journals(path, names)
    with contextlib.closing(journals[0]):
        read = {name: journal.read() for name, journal in zip(names, journals, strict=True)}
    return {name: found for name, found in read.items() if found is not None}


@contextlib.contextmanager
def together(journals: Sequence[RunJournal]) -> Generator[None]:
    """Commit all writes of the body to the journals of one run's policies, or none. Raises JournalError if the disk
    refuses."""
    try:
        with journals[0].committing():
            yield
    except BaseException:
        for journal in journals:
            journal.forget_written()
        raise


class RunJournal:
    """Owns `<run>/journal.sqlite` while open: no other process can read or write the file."""

    def __init__(self, path: Path, *, policy: str = "", beside: RunJournal | None = None) -> None:
        """Open the journal, or make a new file. Each of several policies has tables of its own, by name, in the file
        opened by the journal `beside`. Raises JournalError, also if another process has the file open."""
        if not _PREFIX.fullmatch(policy):
            raise ValueError(f"{policy!r} cannot be part of a table's name: small letters, digits and underscores only")
        self._path = path
        self._prefix = _prefix(policy)
        self._written: dict[str, bytes] = {}
        """The last committed parts of the snapshot."""
        self._opened_file = beside is None
        if beside is None:
            self._database = Database(path, _tables(self._prefix))
        else:
            self._database = beside._database
            with self.committing():
                for statement in _tables(self._prefix).split(";"):
                    self._db.execute(statement)

    @property
    def _db(self) -> sqlite3.Connection:
        return self._database.connection

    def put_back(self) -> str | None:
        """Restore the file if it was removed or replaced: see Database. Call only between writes."""
        return self._database.put_back()

    def committing(self) -> contextlib.AbstractContextManager[None]:
        """Commit all writes of the body, or none, as a part of an outer transaction if there is one. Raises
        JournalError."""
        return committing(self._db, self._path)

    def forget_written(self) -> None:
        """Write the next entry whole, since the last commit may have failed."""
        self._written = {}

    def write(self, *turns: JournalEntry) -> None:
        """Commit the entries of turns, in order, in one transaction. Raises JournalError and changes nothing if the
        disk refuses."""
        encode, db, newest = msgspec.msgpack.encode, self._db, _newest_of(turns)
        parts = {name: encode(getattr(newest.experiment, name)) for name in _PARTS}
        parts["identity"] = encode(newest.identity)
        new = [(name, body) for name, body in parts.items() if self._written.get(name) != body]
        with self.committing():
            db.execute(f"insert or replace into {self._prefix}memory values (0, ?)", (encode(_head_of(newest)),))
            db.executemany(f"insert or replace into {self._prefix}part values (?, ?)", new)
            for turn in turns:
                self._write_news(turn)
        self._written = parts

    def _write_news(self, turn: JournalEntry) -> None:
        """Write the incremental parts of a turn; of all other parts, only the newest is needed."""
        encode, db = msgspec.msgpack.encode, self._db
        self._write_rows(turn.changes)
        self._write_chunks(turn)
        if turn.episodes is not None:
            db.execute(f"delete from {self._prefix}episodes where first >= ?", (turn.episodes.first,))
            newest = (turn.episodes.first, encode(turn.episodes))
            db.execute(f"insert into {self._prefix}episodes values (?, ?)", newest)
        if turn.priorities is not None:
            known = turn.priorities
            values = (known.first_row, known.priorities.tobytes())
            db.execute(f"insert or replace into {self._prefix}priorities values (0, ?, ?)", values)

    def _write_chunks(self, turn: JournalEntry) -> None:
        """Write many chunks with one statement, since each statement releases and reacquires the interpreter's lock."""
        encode, db = msgspec.msgpack.encode, self._db
        for start in range(0, len(turn.added), ROWS_PER_STATEMENT):
            added = turn.added[start : start + ROWS_PER_STATEMENT]
            places = ", ".join(["(?, ?)"] * len(added))
            values = [value for chunk in added for value in (chunk.first_row, encode(chunk))]
            db.execute(f"insert or replace into {self._prefix}chunk values {places}", values)
        for start in range(0, len(turn.gone), ROWS_PER_STATEMENT):
            gone = turn.gone[start : start + ROWS_PER_STATEMENT]
            places = ", ".join("?" * len(gone))
            db.execute(f"delete from {self._prefix}chunk where first_row in ({places})", gone)

    def _write_rows(self, changes: Changes) -> None:
        db = self._db
        for table in _ROWS:
            rows: Rows[Any] = getattr(changes, table)
            if changes.whole:
                db.execute(f"delete from {self._prefix}{table}")
            if rows.gone:
                db.executemany(f"delete from {self._prefix}{table} where key = ?", [(key,) for key in rows.gone])
            if rows.put:
                put = [(row.key, msgspec.msgpack.encode(row)) for row in rows.put]
                db.executemany(f"insert or replace into {self._prefix}{table} values (?, ?)", put)

    def read(self) -> Recovered | None:
        """Return all committed content; None from a new journal. Raises JournalDamagedError if unreadable, and
        JournalError if written by another version of Remuda."""
        try:
            head = self._db.execute(f"select body from {self._prefix}memory").fetchone()
            chunks = self._db.execute(f"select body from {self._prefix}chunk order by first_row").fetchall()
            episodes = self._db.execute(f"select body from {self._prefix}episodes order by first").fetchall()
            priorities = self._db.execute(f"select first_row, body from {self._prefix}priorities").fetchone()
            if head is None:
                return None
            return Recovered(
                snapshot=self._memory(head[0]).with_episodes(_EPISODES.decode(body) for (body,) in episodes),
                chunks=tuple(_CHUNKS.decode(body) for (body,) in chunks),
                priorities=None if priorities is None else _prioritized(*priorities),
            )
        except (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise JournalDamagedError(f"{self._path} is damaged: {error}") from error

    def clear(self) -> None:
        """Clear the journal, since the run starts over. Raises JournalError and changes nothing if the disk refuses."""
        with self.committing():
            for table in ("chunk", "memory", "part", "episodes", "priorities", *_ROWS):
                self._db.execute(f"delete from {self._prefix}{table}")
        self._written = {}

    def close(self) -> None:
        """Close the file, leaving no other file; the journals beside the opener leave the file open. May be called
        again."""
        if self._opened_file:
            self._db.close()

    def _memory(self, head: bytes) -> RunSnapshot:
        format = msgspec.msgpack.decode(head)[0]
        if format != FORMAT:
            raise JournalError(
                f"{self._path} has format {format} and this version of Remuda reads {FORMAT}: "
                "resume with the version that wrote it"
            )
        known = _HEAD.decode(head)
        bodies = dict(self._db.execute(f"select name, body from {self._prefix}part").fetchall())
        parts = {name: decoder.decode(bodies[name]) for name, decoder in _PARTS.items() if name in bodies}
        experiment = ExperimentSnapshot(**{name: getattr(known, name) for name in _OF_RUN}, **parts)
        identity = _IDENTITY.decode(bodies["identity"])
        return RunSnapshot(known.format, identity, experiment, known.leases, known.boot).with_rows(self._rows())

    def _rows(self) -> Changes:
        found = {
            table: self._db.execute(f"select body from {self._prefix}{table} order by key").fetchall()
            for table in _ROWS
        }
        rows = {name: Rows(tuple(_ROWS[name].decode(body) for (body,) in bodies)) for name, bodies in found.items()}
        return Changes(**rows, whole=True)


def _newest_of(turns: Sequence[JournalEntry]) -> RunSnapshot:
    """Return the newest snapshot, with the rows of progress.txt of all turns: none of the rows is written yet."""
    newest = turns[-1].snapshot
    if len(turns) == 1:
        return newest
    given = [row for turn in turns for row in turn.snapshot.experiment.progress.given]
    progress = replace(newest.experiment.progress, given=given)
    return replace(newest, experiment=replace(newest.experiment, progress=progress))


def _head_of(snapshot: RunSnapshot) -> HeadSnapshot:
    of_run = {name: getattr(snapshot.experiment, name) for name in _OF_RUN}
    return HeadSnapshot(snapshot.format, snapshot.leases, snapshot.boot, **of_run)


def _prioritized(first_row: int, body: bytes) -> Prioritized:
    return Prioritized(first_row, np.frombuffer(body, np.float32))
