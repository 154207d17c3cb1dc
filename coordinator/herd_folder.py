"""The runs folder of a lasting coordinator: owned by one at a time, with a list of the runs it has in hand."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from remuda.coordinator.effects import Remember
from remuda.coordinator.events import Recovered
from remuda.coordinator.journal import JournalDamagedError, JournalError, committing, open_database
from remuda.coordinator.lost_run import look_at
from remuda.coordinator.past_run import PastRun
from remuda.coordinator.run_books import RunBooks
from remuda.storage.checkpoint_index import CheckpointIndexError
from remuda.storage.ownership import FolderOwnedError, Ownership
from remuda.wire.messages import OVER

FINISHED_SHOWN = 100
"""Runs that are over and still shown by `status` after a restart: the newest."""

_TABLES = """
create table if not exists run
  (experiment text primary key, run_dir text not null, is_over integer not null default 0);
create table if not exists start
  (epoch integer primary key autoincrement, address text);
"""


class HerdFolder:
    """Owns the runs folder while it is open; the list is `<runs-dir>/coordinator.sqlite`."""

    def __init__(self, runs_dir: Path) -> None:
        """Take the folder, made if missing. Raises FolderOwnedError where another coordinator has it, JournalError
        where the list cannot be opened, and OSError."""
        runs_dir.mkdir(parents=True, exist_ok=True)
        self._ownership = Ownership(runs_dir / ".coordinator")
        self._path = runs_dir / "coordinator.sqlite"
        try:
            self._db = _open_whole(self._path)
        except JournalError:
            self._ownership.release()
            raise
        self._known: dict[str, bool] = {}
        """Whether each run that was noted is over."""

    @property
    def last_address(self) -> str | None:
        """Where the coordinator before this one listened."""
        found = self._db.execute("select address from start order by epoch desc limit 1").fetchone()
        return None if found is None else found[0]

    def begin(self, address: str) -> int:
        """A coordinator listens at this address; returns its epoch, which grows with every start. Raises JournalError
        when the disk does not take it."""
        with committing(self._db, self._path):
            found = self._db.execute("insert into start (address) values (?) returning epoch", (address,)).fetchone()
        return int(found[0])

    def recover(self, books: RunBooks) -> Iterator[Recovered | PastRun]:
        """Open the books of every run in hand, oldest first, and show the newest of those that are over. What cannot
        be taken up is said, left as it is, and tried again at the next start."""
        runs = "select rowid, experiment, run_dir, is_over from run"
        newest = f"{runs} where rowid in (select max(rowid) from run group by run_dir)"
        over = self._db.execute(
            f"{newest} and is_over order by rowid desc limit ?",
            (FINISHED_SHOWN,),
        ).fetchall()
        in_hand = self._db.execute(f"{newest} and not is_over").fetchall()
        for _, experiment, run_dir, is_over in sorted([*over, *in_hand]):
            try:
                yield books.recover(Path(run_dir))
            except FolderOwnedError as error:  # it is well, in other hands
                print(f"{run_dir} is not taken up: {error}", file=sys.stderr, flush=True)
            except (JournalError, CheckpointIndexError, OSError, ValueError) as error:
                if is_over:  # its folder was taken away, say, or another version of Remuda made it
                    continue
                lost = look_at(experiment, Path(run_dir), error)
                print(lost.last.reason, file=sys.stderr, flush=True)
                yield lost

    def note(self, remember: Remember) -> None:
        """A run is new, or over. A folder has one run: one that is resumed takes the place of the life before it.

        Raises JournalError when the disk does not take it."""
        is_over = remember.memory.experiment.state in OVER
        if self._known.get(remember.experiment) == is_over:
            return
        values = (remember.experiment, remember.memory.identity.run_dir, is_over)
        with committing(self._db, self._path):
            self._db.execute("delete from run where run_dir = ? and experiment != ?", (values[1], values[0]))
            self._db.execute(
                "insert into run values (?, ?, ?) on conflict do update set is_over = excluded.is_over", values
            )
        self._known[remember.experiment] = is_over

    def confirm(self) -> None:
        """Show other hosts that the folder is in hand."""
        self._ownership.confirm()

    def close(self) -> None:
        """Let go of the folder. May be called again."""
        self._db.close()
        self._ownership.release()


def _open_whole(path: Path) -> sqlite3.Connection:
    """Open the list and read all of it: what is found damaged later could not be told as such."""
    try:
        db = open_database(path, _TABLES)
        try:
            [problem] = db.execute("pragma integrity_check(1)").fetchone()
        except sqlite3.Error as error:
            problem = str(error)
        if problem == "ok":
            return db
        db.close()
        raise JournalDamagedError(f"{path} is damaged: {problem.splitlines()[-1]}")
    except JournalDamagedError as error:
        advice = "move it away, and go on with each run by `remuda submit --resume`"
        raise JournalDamagedError(f"{error}; {advice}") from error
