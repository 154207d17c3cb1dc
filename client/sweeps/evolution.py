"""Runs a population to its end: trains all members for an interval, and lets the worst continue from the best."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import structs

from remuda.client.sweeps.grid import Grid
from remuda.client.sweeps.lineage import Interval, Lineage, LineageError, Origin, pin, place, unpin, verify
from remuda.client.sweeps.plan import Executor, PlannedRun, Task, beginning, carry_out, plan_member
from remuda.client.sweeps.population import Population, first_settings, next_descents, setting_text
from remuda.client.sweeps.record import RunRecord, SweepBook
from remuda.config.errors import ConfigError
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import Mode, OnExists
from remuda.storage.lock import FolderOwnedError, Ownership
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord

ATTEMPTS = 3
"""Starts of a run per interval, before the member counts as failed."""
AT_REST_S = 120.0
"""Longest wait for the process of an earlier sweep to save and close a run."""
LOOK_S = 0.2


class PopulationFailedError(Exception):
    """All members have failed; the message has the reason of the first."""


class Evolution:
    """A population in the folder of a sweep.

    sweep.json is the journal: an interval is on disk, with every origin and its checksum, before any of its files is
    made. All members come to the end of an interval before the next is decided, so a killed sweep finds the parents of
    unfinished folders at rest. Decisions depend on the seed and the returns alone.
    """

    def __init__(
        self,
        grid: Grid,
        population: Population,
        executor: Executor,
        book: SweepBook,
        *,
        folder: Path,
        mode: Mode,
        sets: Sequence[str] = (),
        on_change: Callable[[Sequence[RunRecord]], None] = lambda news: None,
        say: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`say` gets a line per replaced member. Raises ConfigError if the population in the book has another space."""
        self._grid, self._pbt, self._executor, self._book = grid, population, executor, book
        self._folder, self._sets = folder, sets
        self._mode: Mode = mode
        self._on_change, self._say, self._sleep = on_change, say, sleep
        config = plan_member(grid, 0, {}, folder, sets=sets).loaded.config
        self._stop_value, self._most_env_steps = config.stop.stop_value, config.stop.max_env_steps
        self._seed = config.seed
        space = {key: str(one) for key, one in population.space.items()}
        if book.lineage is None:
            book.lineage = Lineage(space, ())
        first = next(iter(book.lineage.intervals), None)
        if book.lineage.space != space or (first is not None and len(first.origins) != population.population):
            raise ConfigError(
                [
                    f"{grid.path}: the population in {folder} was begun with another space or number of members: start "
                    "over with --force, or keep it and give the sweep another name or --sweep-dir"
                ]
            )

    @property
    def lineage(self) -> Lineage:
        """All intervals so far."""
        assert self._book.lineage is not None
        return self._book.lineage

    def run(self, *, ending: Callable[[], bool]) -> bool:
        """Return True when the population is over, and False, once `ending`, when all started runs have saved and
        ended. Raises LineageError and PopulationFailedError."""
        if not self.lineage.intervals:
            self._begin()
        while True:
            *earlier, interval = self.lineage.intervals
            if not interval.ends:
                if not self._train(interval, ending):
                    return False
                interval = structs.replace(interval, ends=tuple(map(self._end, interval.origins)))
                if self._is_over(interval):
                    self._write((*earlier, interval), [])
            if self._is_over(interval):
                return True
            self._decide(earlier, interval)

    # --- decisions ---

    def _rng(self, interval: int) -> np.random.Generator:
        return np.random.default_rng([self._pbt.seed, interval])

    def _begin(self) -> None:
        drawn = first_settings(self._pbt, self._rng(0))
        origins = tuple(
            Origin(member=member, generation=0, run=self._run_name(member, 0), settings=dict(settings))
            for member, settings in enumerate(drawn)
        )
        self._write((self._next(origins, 0),), map(self._record, origins))

    def _write(self, intervals: tuple[Interval, ...], records: Iterable[RunRecord]) -> None:
        self._book.write(records, Lineage(self.lineage.space, intervals))

    def _next(self, origins: tuple[Origin, ...], env_step: int) -> Interval:
        """Return an interval up to the next multiple of its length, or to the end of the run."""
        every = self._pbt.interval_env_steps
        until = min((env_step // every + 1) * every, self._most_env_steps)
        return Interval(until_env_step=until, origins=origins)

    def _is_over(self, interval: Interval) -> bool:
        rewards = [end.reward for end in interval.ends if end is not None and end.reward is not None]
        solved = self._stop_value is not None and max(rewards, default=-math.inf) >= self._stop_value
        return bool(interval.ends) and (solved or interval.until_env_step >= self._most_env_steps)

    def _decide(self, earlier: Sequence[Interval], interval: Interval) -> None:
        """Compare the members, and write the next interval, with the records of its runs and of replaced runs."""
        returns = [None if end is None else end.reward for end in interval.ends]  # not evaluated counts as failed
        if all(result is None for result in returns):
            reason = self._book.runs[interval.origins[0].run].reason or "no reason is known"
            raise PopulationFailedError(f"every member has failed; the first: {reason}")
        rng = self._rng(len(self.lineage.intervals))
        descents = next_descents(self._pbt, returns, [origin.settings for origin in interval.origins], rng)
        origins: list[Origin] = []
        for member, descent in enumerate(descents):
            own, parent, end = interval.origins[member], interval.origins[descent.parent], interval.ends[descent.parent]
            assert end is not None, "failed members are replaced"
            pin(self._folder, self._run_dir(parent), end)
            generation = own.generation + (descent.parent != member)
            origins.append(
                Origin(
                    member=member,
                    generation=generation,
                    run=self._run_name(member, generation),
                    settings=dict(descent.settings),
                    parent=parent.run,
                    checkpoint=end,
                )
            )
        reached = max(end.env_step for end in interval.ends if end is not None)
        replaced = [(own, new) for own, new in zip(interval.origins, origins, strict=True) if own.run != new.run]
        gone = [
            structs.replace(self._book.runs[own.run], reason=f"replaced: goes on from {new.parent}")
            for own, new in replaced
        ]
        self._write((*earlier, interval, self._next(tuple(origins), reached)), [*gone, *map(self._record, origins)])
        for own, new in replaced:
            self._say(_replacement(interval, own, new))

    # --- training ---

    def _train(self, interval: Interval, ending: Callable[[], bool]) -> bool:
        """Train all members to the end of the interval; return False if interrupted. Every folder is made and checked
        before any run begins."""
        unpin(self._folder, [origin.checkpoint for origin in interval.origins if origin.checkpoint is not None])
        for _ in range(ATTEMPTS):
            todo = [task for origin in interval.origins if (task := self._task(origin, interval)) is not None]
            if not todo:
                return True
            carry_out(todo, self._executor, self._book, ending=ending, on_change=self._on_change, sleep=self._sleep)
            if ending():
                return False
        return True

    def _task(self, origin: Origin, interval: Interval) -> Task | None:
        """Return the rest of a member's work in this interval; None if it is done."""
        run, record = self._planned(origin, interval), self._book.runs[origin.run]
        if not self._is_at_rest(run.run_dir, waits=self._mode == "serial" or record.over):
            return Task(run, "resume", record)  # a coordinator is at work on it, which is followed
        if (done := _done(run.run_dir, interval, record)) is not None:
            if done != record:
                self._book.write([done])
                self._on_change([done])
            return None
        waiting = structs.replace(record, state="waiting", reason=None, experiment=None) if record.over else record
        return Task(run, self._start(run, origin), waiting)

    def _start(self, run: PlannedRun, origin: Origin) -> OnExists:
        """Make the folder of a new generation, and check the checkpoint to begin from."""
        if origin.checkpoint is not None and not run.run_dir.exists():
            with_replay = self._pbt.copies == "weights_and_replay"
            place(self._folder, origin, run.run_dir, self._dir_of(origin.parent or ""), with_replay=with_replay)
        on_exists = beginning(run, self._mode, may_change=("name", "seed", *self._pbt.space))
        if origin.checkpoint is not None and on_exists != "resume":
            raise LineageError(f"{run.run_dir} has no checkpoint: put it back, or start over with --force")
        if on_exists == "resume":
            verify(self._folder, origin, run.run_dir)
        return on_exists

    def _is_at_rest(self, run_dir: Path, *, waits: bool) -> bool:
        """True if no process works on the run. With `waits`, waits for it. Raises FolderOwnedError."""
        deadline_s = time.monotonic() + AT_REST_S
        while run_dir.exists():
            try:
                Ownership(RunFolder(run_dir).owner).release()
            except FolderOwnedError:
                if not waits:
                    return False
                if time.monotonic() > deadline_s:
                    raise
                self._sleep(LOOK_S)
            else:
                break
        return True

    def _end(self, origin: Origin) -> CheckpointRecord | None:
        if self._book.runs[origin.run].state != "finished":
            return None
        return CheckpointIndex(RunFolder(self._run_dir(origin)).ckpt).last

    # --- names ---

    def _record(self, origin: Origin) -> RunRecord:
        """Return the record, with the results so far, of a run between two intervals."""
        former = self._book.runs.get(origin.run)
        variant = self._grid.member(origin.member, origin.settings).name
        if former is not None:
            return structs.replace(former, state="waiting", reason=None, experiment=None, settings=origin.settings)
        return RunRecord(
            name=origin.run,
            variant=variant,
            seed=self._seed + origin.member,
            settings=origin.settings,
            run_dir=f"{variant}/{origin.run}",
        )

    def _planned(self, origin: Origin, interval: Interval) -> PlannedRun:
        """Return the run, which ends with the interval; the population's stop value is no end of a member. Each member
        has a seed of its own."""
        bounds = {"stop.max_env_steps": interval.until_env_step, "stop.stop_value": None}
        run = plan_member(
            self._grid,
            origin.member,
            {**origin.settings, **bounds},
            self._folder,
            seed=self._seed + origin.member,
            sets=self._sets,
        )
        return replace(run, name=origin.run, run_dir=self._run_dir(origin))

    def _run_name(self, member: int, generation: int) -> str:
        return f"{self._grid.member(member, {}).name}_g{generation}"

    def _run_dir(self, origin: Origin) -> Path:
        return self._dir_of(origin.run)

    def _dir_of(self, run: str) -> Path:
        return self._folder / run.rpartition("_g")[0] / run


def _done(run_dir: Path, interval: Interval, record: RunRecord) -> RunRecord | None:
    """Return the record of a run whose last checkpoint is at the end of the interval, and evaluated unless the run
    could not; else None."""
    index = CheckpointIndex(RunFolder(run_dir).ckpt) if run_dir.exists() else None
    last = None if index is None else index.last
    if index is None or last is None or last.env_step < interval.until_env_step:
        return None
    if last.reward is None and record.state != "finished":
        return None
    best = None if index.best is None else index.best.reward
    known = {"env_step": last.env_step, "train_iter": last.train_iter, "last_return": last.reward, "best_return": best}
    return structs.replace(record, state="finished", **known)


def _replacement(interval: Interval, own: Origin, origin: Origin) -> str:
    assert origin.checkpoint is not None
    end = interval.ends[own.member]
    lost = "failed" if end is None or end.reward is None else f"had {end.reward:.2f}"
    settings = ", ".join(f"{key} {setting_text(value)}" for key, value in origin.settings.items())
    return (
        f"env_step {interval.until_env_step}: {own.run} {lost}; {origin.run} goes on from {origin.parent} "
        f"({origin.checkpoint.reward:.2f}, {origin.checkpoint.file}) with {settings}"
    )
