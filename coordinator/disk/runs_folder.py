"""The runs folder of a persistent coordinator: owned by a single coordinator at a time, with a list of all runs.

A finished run is a row of this list; the run folder is not read again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
from msgspec.structs import astuple

from remuda.coordinator.bill import by_hour, date
from remuda.coordinator.disk.run_folder import RunEffect
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.disk.run_thread import HeldSince
from remuda.coordinator.effects import CloseRun
from remuda.coordinator.events import RecoveredRun
from remuda.coordinator.journaling import recovered_run
from remuda.coordinator.shares import LONGEST_H, Past
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.existing_folder import make_private
from remuda.storage.lock import FolderOwnedError, Ownership
from remuda.storage.run_folder import RUNS_LIST, RUNS_OWNER, RunFolder
from remuda.storage.untrusted import json_of, read_bounded
from remuda.training.journal_database import JournalDamagedError, JournalError, committing, open_database
from remuda.training.journal_entry import JournalEntry
from remuda.training.next_command import resume_command
from remuda.training.run_snapshot import FinishedRun, HourRow, Identity
from remuda.training.status import failed_status
from remuda.wire.messages import OVER, BillLine, Quota, Used

FINISHED_SHOWN = 100
"""Number of finished runs shown by `status` after a restart: the last ones to end."""

_SUMS = "sum(worker_us), sum(gpu_us), sum(cpu_us), sum(env_steps), sum(updates), sum(payload_bytes)"
_TABLES = """
create table if not exists run
  (experiment text primary key, run_dir text not null, is_over integer not null default 0, last blob);
create index if not exists run_by_folder on run (run_dir);
create table if not exists held
  (experiment text primary key, since_s real not null, why text not null, room_bytes integer not null);
create table if not exists use_in_hour
  (experiment text not null, hour integer not null, name text not null, user text not null, project text not null,
  worker_us integer not null, gpu_us integer not null, cpu_us integer not null, env_steps integer not null,
  updates integer not null, payload_bytes integer not null, primary key (experiment, hour)) without rowid;
create table if not exists quota (account text primary key, body blob not null) without rowid;
create table if not exists start
  (epoch integer primary key autoincrement, address text);
"""
_LAST_H = 1 << 40
"""After all hours."""
_STARTS_KEPT = 100
_FINISHED = msgspec.msgpack.Decoder(FinishedRun)
_QUOTA = msgspec.msgpack.Decoder(Quota)
_MOST_CONFIG_BYTES = 16 << 20


@dataclass(frozen=True)
class ListedRun:
    """An unfinished run of this runs folder."""

    experiment: str
    run_dir: Path


@dataclass(frozen=True)
class KnownRun:
    """A run of the list, for readers outside of the coordinator."""

    experiment: str
    """The experiment's id."""
    name: str
    """Name of the run; for an unfinished run, the name of its folder."""
    run_dir: Path


def known_runs(runs_dir: Path) -> list[KnownRun]:
    """Read the list of a runs folder without a coordinator, newest first. Nothing is locked or changed.

    Empty if no readable list exists.
    """
    path = (runs_dir / RUNS_LIST).absolute()
    if not path.is_file():  # SQLite would wait for a pipe
        return []
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            rows = db.execute("select experiment, run_dir, last from run order by rowid desc").fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        return []
    return [
        KnownRun(experiment, _name(last) or Path(run_dir).name, runs_dir / run_dir)
        for experiment, run_dir, last in rows
    ]


def _name(last: bytes | None) -> str | None:
    """Return the name of a finished run; None if the run is unfinished, or was written by a different version of
    Remuda."""
    try:
        return None if last is None else _FINISHED.decode(last).identity.name
    except msgspec.MsgspecError:
        return None


class RunsFolder:
    """Owns the runs folder while open. The list is `<runs-dir>/coordinator.sqlite`, with paths relative to the folder:
    a folder that is moved, or restored on another machine, is continued there. For any thread."""

    def __init__(self, runs_dir: Path) -> None:
        """Take the folder, or make a new folder. Raises FolderOwnedError if a different coordinator owns the folder,
        JournalError if the list cannot be opened, and OSError."""
        make_private(runs_dir)
        self._ownership = Ownership(runs_dir / RUNS_OWNER)
        self._root, self._path = runs_dir, runs_dir / RUNS_LIST
        try:
            self._db = _open_whole(self._path)
        except JournalError:
            self._ownership.release()
            raise
        self._lock = threading.Lock()
        self._known: dict[str, bool] = {}
        """Noted runs; True for a finished run."""

    @property
    def last_address(self) -> str | None:
        """Address of the previous coordinator."""
        found = self._db.execute("select address from start order by epoch desc limit 1").fetchone()
        return None if found is None else found[0]

    def begin(self, address: str) -> int:
        """Record the address of this coordinator; return the epoch, which grows with every start. Raises JournalError
        if the disk refuses."""
        with self._lock, committing(self._db, self._path):
            found = self._db.execute("insert into start (address) values (?) returning epoch", (address,)).fetchone()
            self._db.execute("delete from start where epoch <= ?", (int(found[0]) - _STARTS_KEPT,))
        return int(found[0])

    def finished(self) -> list[FinishedRun]:
        """Return the last runs to end, in the order of the ends, from the rows."""
        with self._lock:
            rows = self._db.execute(
                "select run_dir, last from run where is_over and last is not null order by rowid desc limit ?",
                (FINISHED_SHOWN,),
            ).fetchall()
        found: list[FinishedRun] = []
        for run_dir, last in reversed(rows):
            with contextlib.suppress(msgspec.MsgspecError):  # a row of another version of Remuda: its folder is there
                found.append(_FINISHED.decode(last).at(str(self._root / run_dir)))
        return found

    def unfinished(self) -> list[ListedRun]:
        """Return the unfinished runs, oldest first; of several in one folder only the newest."""
        with self._lock:
            rows = self._db.execute(
                "select experiment, run_dir from run where rowid in (select max(rowid) from run group by run_dir) "
                "and not is_over order by rowid"
            ).fetchall()
        return [ListedRun(experiment, self._root / run_dir) for experiment, run_dir in rows]

    def take_up(self, run: ListedRun, folders: RunFolders, now_s: float) -> RecoveredRun | FinishedRun | None:
        """Recover an unfinished run. If impossible, log the reason and leave the run for the next start. None: a
        different process works on the run."""
        try:
            found = recovered_run(folders.recover(run.run_dir), now_s)
        except FolderOwnedError as error:
            print(f"{run.run_dir} is not taken up: {error}", file=sys.stderr, flush=True)
            return None
        except (JournalError, CheckpointIndexError, OSError, ValueError) as error:
            finished = unrecoverable_run(run.experiment, run.run_dir, error)
            print(finished.last.reason, file=sys.stderr, flush=True)
            return finished
        if not found.experiment.over:
            return found
        finished = FinishedRun.of(
            found.experiment.identity, found.experiment.status(now_s), found.experiment.meter.hours
        )
        self.note_over(finished)  # its coordinator died between its journal and this list
        return finished

    def note(self, entry: JournalEntry) -> None:
        """Record a new or finished run. A folder has a single run: a resumed run replaces the previous one.

        Raises JournalError if the disk refuses.
        """
        is_over = entry.snapshot.experiment.state in OVER
        if entry.changes.hour.put:
            with self._lock, committing(self._db, self._path):
                self._note_used(entry.snapshot.identity, entry.changes.hour.put)
        if self._known.get(entry.experiment) != is_over:
            identity = entry.snapshot.identity
            self._note(identity.id, identity.run_dir, entry.last if is_over else None)

    def note_over(self, last: FinishedRun) -> None:
        """Record the end of a run, whatever the journal contains. Raises JournalError if the disk refuses."""
        self._note(last.identity.id, last.identity.run_dir, last)

    def _note(self, experiment: str, run_dir: str, last: FinishedRun | None) -> None:
        is_over = last is not None
        run_dir = run_dir.removeprefix(f"{self._root}/")
        values = (experiment, run_dir, is_over, None if last is None else msgspec.msgpack.encode(last))
        with self._lock:
            with committing(self._db, self._path):
                self._db.execute("delete from run where run_dir = ? and experiment != ?", (run_dir, experiment))
                self._db.execute("insert or replace into run values (?, ?, ?, ?)", values)  # as the newest row
                if last is not None:
                    self._note_used(last.identity, last.hours)
                self._db.execute(
                    "delete from held where experiment not in (select experiment from run where not is_over)"
                )
            self._known[experiment] = is_over
            if is_over:
                del self._known[experiment]

    # --- use and quotas ---

    def _note_used(self, identity: Identity, hours: Sequence[HourRow]) -> None:
        """Record the use of a run from the first of these hours on, by the totals at their ends."""
        experiment, names = identity.id, (identity.name, identity.user, identity.project)
        first = min((row.hour for row in hours), default=_LAST_H)
        self._db.execute("delete from use_in_hour where experiment = ? and hour >= ?", (experiment, first))
        sums = self._db.execute(f"select {_SUMS} from use_in_hour where experiment = ?", (experiment,)).fetchone()
        found = by_hour(hours, Used(*(amount or 0 for amount in sums)))
        rows = [(experiment, hour, *names, *astuple(used)) for hour, used in found.items()]
        self._db.executemany("insert into use_in_hour values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def used(self, since_hour: int, until_hour: int, without: Collection[str]) -> list[BillLine]:
        """Return the use of each run and day in a period, `without` some experiments.

        No second connection may read: the database is locked for this connection, see open_database.
        """
        with self._lock:
            rows = self._db.execute(
                f"select experiment, name, user, project, hour / 24 as day, {_SUMS} from use_in_hour "
                "where hour between ? and ? group by experiment, day",
                (since_hour, until_hour - 1),
            ).fetchall()
        return [
            BillLine(user, project, name, experiment, date(day), 1, Used(*amounts))
            for experiment, name, user, project, day, *amounts in rows
            if experiment not in without
        ]

    def past(self) -> list[Past]:
        """Return the use of finished runs by user, project and hour, in the longest period of a quota."""
        now_h = int(time.time()) // 3_600
        with self._lock:
            rows = self._db.execute(
                f"select user, project, hour, {_SUMS} from use_in_hour where hour > ? and experiment not in "
                "(select experiment from run where not is_over) group by user, project, hour",
                (now_h - LONGEST_H,),
            ).fetchall()
        return [Past(user, project, hour, Used(*amounts)) for user, project, hour, *amounts in rows]

    def quotas(self) -> list[Quota]:
        """Return all quotas."""
        with self._lock:
            rows = self._db.execute("select body from quota order by account").fetchall()
        return [_QUOTA.decode(body) for (body,) in rows]

    def keep_quota(self, quota: Quota) -> None:
        """Record a quota; an empty quota removes the former. Raises JournalError if the disk refuses."""
        with self._lock, committing(self._db, self._path):
            self._db.execute("delete from quota where account = ?", (quota.account,))
            if not quota.is_empty:
                self._db.execute("insert into quota values (?, ?)", (quota.account, msgspec.msgpack.encode(quota)))

    # --- holds ---

    def held(self) -> dict[str, HeldSince]:
        """Runs held up by the disks."""
        with self._lock:
            rows = self._db.execute("select experiment, since_s, why, room_bytes from held").fetchall()
        return {experiment: HeldSince(*held) for experiment, *held in rows}

    def note_hold(self, experiment: str, held: HeldSince | None) -> None:
        """Record the hold of a run, or with None the end of the hold. Raises JournalError if the disk refuses."""
        with self._lock, committing(self._db, self._path):
            if held is None:
                self._db.execute("delete from held where experiment = ?", (experiment,))
            else:
                values = (experiment, held.since_s, held.why, held.room_bytes)
                self._db.execute("insert or replace into held values (?, ?, ?, ?)", values)

    def confirm(self) -> None:
        """Prove to remote hosts a living owner of the folder."""
        self._ownership.confirm()

    def close(self) -> None:
        """Release the folder. May be called again."""
        with self._lock:
            self._db.close()
            self._ownership.release()


class RunWriter:
    """Writes a run's files, and its row in the list of runs."""

    def __init__(self, folders: RunFolders, runs_folder: RunsFolder | None, experiment: str) -> None:
        self._run_folders = folders
        self._runs_folder = runs_folder
        self._files = folders.files(experiment)
        """Kept to be closed even after the run is forgotten."""

    def journal(self, turns: Sequence[JournalEntry]) -> None:
        """Write the journal, before the run is listed: every listed run has a journal."""
        if self._files is not None:
            self._files.journal(turns)
        if self._runs_folder is not None:
            for turn in turns:
                self._runs_folder.note(turn)

    def carry_out(self, effect: RunEffect) -> None:
        if self._files is not None:  # otherwise the run is over
            self._files.carry_out(effect)
        if isinstance(effect, CloseRun):
            self._run_folders.close_run(effect.experiment)  # only now: what a disk has refused is tried again

    def confirm(self) -> None:
        if self._files is not None:
            self._files.confirm()

    def check_room(self, size_bytes: int) -> None:
        if self._files is not None:
            self._files.check_room(size_bytes)

    def close(self) -> None:
        if self._files is not None:
            self._files.close()


def _open_whole(path: Path) -> sqlite3.Connection:
    """Open and read the whole list, since later damage could not be reported as damage."""
    try:
        db = open_database(path, _TABLES)
        try:
            [problem] = db.execute("pragma integrity_check(1)").fetchone()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            problem = str(error)
        if problem == "ok":
            _update(db, f"{path.parent}/")
            return db
        db.close()
        raise JournalDamagedError(f"{path} is damaged: {problem.splitlines()[-1]}")
    except JournalDamagedError as error:
        advice = "move it away, and go on with each run by `remuda submit --resume --run-dir RUN`"
        raise JournalDamagedError(f"{error}; {advice}") from error


def _update(db: sqlite3.Connection, start: str) -> None:
    """Update the list of an older version of Remuda, which has no rows of finished runs, and absolute paths."""
    columns = [row[1] for row in db.execute("pragma table_info(run)")]
    if "last" not in columns:
        db.execute("alter table run add column last blob")
    db.execute("update run set run_dir = substr(run_dir, length(?1) + 1) where instr(run_dir, ?1) = 1", (start,))


def unrecoverable_run(experiment: str, run_dir: Path, error: Exception) -> FinishedRun:
    """Return an unrecoverable run, shown as failed because of `error`, with its last checkpoint."""
    folder = RunFolder(run_dir)
    try:
        checkpoints = CheckpointIndex(folder.ckpt)
        last, best = checkpoints.last, checkpoints.best
    except (CheckpointIndexError, OSError):
        last = best = None
    way_out = "" if last is None else f"; to go on from {last.file}, type: {resume_command('submit', run_dir)}"
    identity = Identity(experiment, _name_of(folder), str(run_dir), policy_file="", priority=0, submitted=0)
    reason = f"{run_dir} cannot be recovered: {error}{way_out}"
    return FinishedRun(identity, failed_status(identity, reason, last, best), unrecoverable=True)


def _name_of(folder: RunFolder) -> str:
    try:
        content = json_of(read_bounded(folder.config_json, most_bytes=_MOST_CONFIG_BYTES))
    except (OSError, ValueError):
        content = None
    name = cast("dict[str, object]", content).get("name") if isinstance(content, dict) else None
    return name if isinstance(name, str) else folder.root.name
