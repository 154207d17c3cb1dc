"""A service that goes on for a year: runs come and end, workers die and others come, the coordinator is restarted.

The state machine, the journals and the list of runs are the real ones; workers, network and clock are simulated. What
the simulation itself notes of a run is forgotten when the run is over, so that a year fits into memory.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from uuid import UUID

from remuda.buffer.chunk import chunk_name
from remuda.coordinator.disk.runs_folder import RunsFolder
from remuda.coordinator.events import RecoveredRun
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.journaling import recovered_run
from remuda.coordinator.leases import Lease
from remuda.coordinator.settings import Limits
from remuda.tests.coordinator.configs import short_config
from remuda.tests.coordinator.simulation import STEP_S, Journaled, World
from remuda.tests.coordinator.work import operations, size_of
from remuda.training.journal import RunJournal
from remuda.training.journal_entry import JournalEntry, Recovered
from remuda.training.run_snapshot import FinishedRun
from remuda.wire.channel import Channel
from remuda.wire.messages import AnyMessage, Role, Submit, Task

HERD: dict[Role, int] = {"learner": 3, "evaluator": 3, "collector": 7}
WAITING = 3
"""Short runs that are there at a time, beside the one that goes on all the year."""
CALM_S = 31.0
"""After a restart of the coordinator, in which no worker of the long run is killed: nobody has served for long yet."""
CHUNKS_KEPT = 2_000
"""That the simulation knows of: the newest. Beyond that nobody announces one again."""
_SHORT = {"evaluator": {"episodes": 1, "interval_env_steps": 1_000}, "checkpoint": {"interval_env_steps": 1_000}}
SHORT = short_config(
    **_SHORT,
    stop={"max_env_steps": 40},
    log={"progress_interval_env_steps": 20},
    buffer={"capacity": 120, "min_rows": 16, "samples_per_insert": 1.0},
)
LONG = short_config(
    **_SHORT,
    stop={"max_env_steps": 1 << 50},
    log={"progress_interval_env_steps": 300},
    collector={"count": 5, "minimum": 1, "chunk_env_steps": 16},
)


class JournalFile(Journaled):
    """A run's journal as a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._open: RunJournal | None = None

    def write(self, entry: JournalEntry) -> None:
        self._opened().write(entry)

    def recovered(self) -> Recovered:
        found = self._opened().read()
        assert found is not None
        return found

    def close(self) -> None:
        """As the end of the coordinator's process does."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _opened(self) -> RunJournal:
        self._open = self._open or RunJournal(self.path)
        return self._open


class Year(World):
    """A herd that serves one run all the time, which lends its collectors to many short ones."""

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        super().__init__(SHORT, seed=seed, limits=Limits(lost_after_s=1.0))
        self.beat_interval_s, self.downtime_s = 0.25, 0.1
        self.folder = folder
        self.files: dict[str, JournalFile] = {}
        """Journals of runs that are not over."""
        self.list = RunsFolder(folder)
        self.chance = random.Random(seed)
        self.ends: Counter[str] = Counter()
        """How runs have ended."""
        self.largest_journal_bytes = 0
        """Of a run that is over."""
        self._numbers = dict.fromkeys(HERD, 0)
        self._crashed_s = self.now_s
        self._submitted = 0
        self._leases_before = 0
        for role, count in HERD.items():
            for _ in range(count):
                self._newcomer(role)
        self.config = LONG
        self._long = self._ask_for("long")
        self.step()
        self.step()
        self.config = SHORT

    def told_task(self, experiment: str, task: Task) -> Task:
        """Journals are files here; what they hold of tasks is compared in the simulation itself."""
        return task

    def close(self) -> None:
        for file in self.files.values():
            file.close()
        self.list.close()

    # --- a year goes by ---

    @property
    def runs(self) -> int:
        """That are over."""
        return self.ends.total()

    @property
    def leases(self) -> int:
        """Given out so far."""
        return self._leases_before + self._leases_now

    @property
    def _leases_now(self) -> int:
        return self.coordinator._assignments.newest_lease % 1_000_000  # pyright: ignore[reportPrivateUsage]

    def go_on(self, deaths_per_step: float) -> None:
        """A moment, with somebody's death by chance."""
        waiting = sum(not run.over for run in self.coordinator.experiments)
        for _ in range(waiting, WAITING + 1):
            self._submitted += 1
            self._ask_for(f"{self._submitted}")
        if self.chance.random() < deaths_per_step:
            self._somebody_dies()
        self.step()
        self._forget_what_is_over()

    def crash(self) -> None:
        """The next coordinator has the list of runs, and the journals of those that are not over."""
        self._leases_before += self._leases_now
        self._crashed_s = self.now_s
        for file in self.files.values():
            file.close()
        self.list.close()
        self.list = RunsFolder(self.folder)
        super().crash()

    def left_behind(self) -> Sequence[RecoveredRun | FinishedRun]:
        unfinished = [
            recovered_run(self.files[run.experiment].recovered(), self.now_s) for run in self.list.unfinished()
        ]
        return [*self.list.finished(), *unfinished]

    def keep(self, entry: JournalEntry) -> None:
        """As a run's lane does: into its journal, then into the list."""
        if entry.experiment not in self.files:
            path = self.folder / f"{entry.experiment}.sqlite"
            self.journal[entry.experiment] = self.files[entry.experiment] = JournalFile(path)
        self.files[entry.experiment].write(entry)
        self.list.note(entry)

    def ask(self, message: AnyMessage) -> None:
        """Each time by a client that is not seen again."""
        client = f"client:{self.rng.getrandbits(64):x}".encode()
        self.to_coordinator(client, Channel().post(message, self.now_s))

    def _ask_for(self, name: str) -> str:
        id = str(UUID(int=self.rng.getrandbits(128), version=4))
        self.ask(Submit(name, self.config.model_dump_json(), f"/runs/{name}", experiment=id))
        return id

    # --- workers ---

    def _newcomer(self, role: Role) -> None:
        self._numbers[role] += 1
        self.add(role, self._numbers[role])

    def _somebody_dies(self) -> None:
        calm = self.now_s < self._crashed_s + CALM_S
        long = self._long_run()
        held = {lease.worker for lease in long.leases}
        oldest = {lease.worker for lease in self._oldest(long)}
        spared = held if calm else oldest
        victims = [worker for worker in self.workers.values() if worker.alive and worker.uuid not in spared]
        victim = self.chance.choice(victims)
        if self.chance.random() < 0.7:
            self.restart(victim, self.chance.choice(("", "signal 9 (SIGKILL)")))
        else:  # and is not seen again
            self.kill(victim)
            del self.workers[victim.uuid]
            self._newcomer(victim.role)

    def _oldest(self, run: Experiment) -> Iterator[Lease]:
        """Of each role the one that has served longest: with all of them dying again and again the run would fail."""
        for role in HERD:
            of_role = run.leases.of(role)
            yield from sorted(of_role, key=lambda lease: lease.number)[:1]

    def _long_run(self) -> Experiment:
        found = self.coordinator.experiments.experiment(self._long)
        assert isinstance(found, Experiment), "the run that goes on all the year is over"
        return found

    # --- how large things are ---

    def sizes(self, *, restart: bool) -> dict[str, int]:
        """Sizes of all that is kept in memory and on disk, and operations of an empty turn. With `restart` the
        coordinator is killed, and the operations of the recovery are counted, too."""
        turns = [self._turn_operations() for _ in range(5)]
        coordinator, long = self.coordinator, self._long_run()
        objects, of_long_run = size_of(coordinator), size_of(long)
        peers = len(coordinator.connections)
        lost = len(coordinator.membership._lost)  # pyright: ignore[reportPrivateUsage]
        leases = len(coordinator._assignments.experiment_ids)  # pyright: ignore[reportPrivateUsage]
        journal = self.files[long.identity.id]
        journal.close()
        rows, journal_bytes = _rows_in(journal.path), journal.path.stat().st_size
        return {
            "objects": objects,
            "long_run_objects": of_long_run,
            "journal_rows": rows,
            "journal_bytes": journal_bytes,
            "files": len(self.files),
            "runs_shown": len([*coordinator.experiments]),
            "runs_found": len(self.list.finished()),
            "workers": len(coordinator.registry),
            "workers_lost": lost,
            "peers": peers,
            "leases": leases,
            "turn_operations": int(median(turns)),
            "restart_operations": operations(self.crash) if restart else 0,
        }

    def _turn_operations(self) -> int:
        self.now_s += STEP_S
        return operations(self.tick)

    def bytes_per_run(self) -> float:
        """Of the list of runs, for each in it."""
        self.list.close()
        path = self.folder / "coordinator.sqlite"
        rows, size = _rows_in(path), path.stat().st_size
        self.list = RunsFolder(self.folder)
        return size / rows

    # --- what the simulation forgets ---

    def _forget_what_is_over(self) -> None:
        past = {effect.experiment for effect in self.closed}
        for id in past:
            file = self.files.pop(id)
            del self.journal[id]
            file.close()
            self.largest_journal_bytes = max(self.largest_journal_bytes, file.path.stat().st_size)
            file.path.unlink()
            self._run_threads.pop(id, None)
            self.shown.pop(id, None)
            self.evaluations_shown.pop(id, None)
            run = self.coordinator.experiments.known.get(id)
            assert isinstance(run, FinishedRun)
            self.ends[run.state] += 1
        old = max(len(self.owner) - CHUNKS_KEPT, 0)
        for chunk in [chunk for place, (chunk, owner) in enumerate(self.owner.items()) if place < old or owner in past]:
            del self.owner[chunk]
            self.accepted.discard(chunk)
            self.disk.discard(chunk_name(chunk))
        kept = {(worker.uuid, worker.incarnation) for worker in self.workers.values()}
        kept |= {(chunk.worker, chunk.incarnation) for chunk in self.owner}  # whose files can still be read
        self.sequences = {one: number for one, number in self.sequences.items() if one in kept}
        for notes in (self.said, self.reports, self.progress, self.closed, self.replies, self.used):
            notes.clear()
        for each in (self.written, self.records, self.rewards, self.collected, self._newest):
            each.clear()


def _rows_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        return sum(db.execute(f"select count(*) from {name}").fetchone()[0] for name in tables)
