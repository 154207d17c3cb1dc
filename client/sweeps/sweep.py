"""Runs a sweep to its end: finds unfinished runs, executes them, and records their states."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from remuda.client.sweeps.plan import PlannedRun, beginning, changed
from remuda.client.sweeps.record import RunRecord, SweepBook
from remuda.storage.existing_folder import Mode, OnExists

POLL_S = 0.2


@dataclass(frozen=True)
class Task:
    """An unfinished run, with the way to begin in its folder."""

    run: PlannedRun
    on_exists: OnExists
    record: RunRecord


class Executor(Protocol):
    """Makes runs somewhere."""

    def begin(self, tasks: Sequence[Task]) -> Iterable[RunRecord]:
        """Take over runs, in addition to earlier calls: one run per step of the iteration, which may end early."""
        ...

    def stop_runs(self, names: Collection[str]) -> None:
        """Let these runs save and end, or never begin; their state is then `stopped`."""
        ...

    def poll(self) -> list[RunRecord]:
        """Return records changed since the last call. Never blocks for long."""
        ...

    def stop(self) -> None:
        """Let running runs save and end; no further run begins."""
        ...


def tasks(
    runs: Sequence[PlannedRun], known: Mapping[str, RunRecord], mode: Mode, *, force: bool = False
) -> tuple[list[RunRecord], list[Task]]:
    """Return the records of all runs, and the tasks for unfinished runs.

    Skips a finished run, unless `force` is true or the stop conditions have changed. Raises RunFolderError and
    ConfigError like `plan.beginning`.
    """
    records: list[RunRecord] = []
    todo: list[Task] = []
    for run in runs:
        former = known.get(run.name)
        on_exists = beginning(run, mode, force=force)
        if on_exists == "resume" and former is not None and former.state == "finished" and not _has_new_end(run):
            records.append(former)
            continue
        new = RunRecord(
            name=run.name,
            variant=run.variant,
            seed=run.seed,
            settings=dict(run.settings),
            run_dir=f"{run.variant}/{run.name}",
        )
        # A run that is continued keeps its results while it waits.
        kept = new if former is None or on_exists != "resume" else replace(former, state="waiting", reason=None)
        records.append(kept)
        todo.append(Task(run, on_exists, kept))
    return records, todo


def carry_out(
    todo: Sequence[Task],
    executor: Executor,
    book: SweepBook,
    *,
    ending: Callable[[], bool],
    on_change: Callable[[Sequence[RunRecord]], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when all runs are over, or, after `ending` is true, when all started runs are over. A failed run does not
    stop the sweep."""
    states = {task.record.name: task.record for task in todo}

    def note(news: Sequence[RunRecord]) -> None:
        if any(_is_step(states[record.name], record) for record in news):
            book.write(news)
        states.update((record.name, record) for record in news)
        on_change(news)

    for record in executor.begin(todo):
        note([record])
        if ending():
            break
    stopping = False
    while any(_is_awaited(record, stopping) for record in states.values()):
        if ending() and not stopping:
            stopping = True
            executor.stop()
        note(executor.poll())
        sleep(POLL_S)


def _has_new_end(run: PlannedRun) -> bool:
    return any(key.startswith("stop.") for key in changed(run))


def _is_awaited(record: RunRecord, stopping: bool) -> bool:
    return record.state in ("queued", "running") or (record.state == "waiting" and not stopping)


def _is_step(before: RunRecord, after: RunRecord) -> bool:
    """True for changes to be written to sweep.json."""
    return (before.state, before.experiment) != (after.state, after.experiment)
