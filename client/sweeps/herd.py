"""Makes the runs of a sweep as experiments of a coordinator, as many at a time as its workers permit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from msgspec.structs import replace

from remuda.client.checking import with_agents
from remuda.client.client import Client, with_retries
from remuda.client.stored_run import read_results
from remuda.client.sweeps.plan import Task
from remuda.client.sweeps.record import RunRecord, RunState
from remuda.wire.conversation import RefusedError
from remuda.wire.messages import ExperimentState, ExperimentStatus

_T = TypeVar("_T")

LOOK_S = 0.5
"""Between two requests to the coordinator."""
_STATES: dict[ExperimentState, RunState] = {
    "queued": "queued",
    "starting": "running",
    "running": "running",
    "stopping": "running",
    "finished": "finished",
    "stopped": "stopped",
    "failed": "failed",
}


class HerdRuns:
    """Submits runs to one coordinator and follows the experiments.

    Methods raise UnreachableError if no coordinator has answered for RETURN_DEADLINE_S. The experiments continue, and
    the next sweep in the same folder follows them again.
    """

    def __init__(self, client: Client, *, adopt: bool = True, sleep: Callable[[float], None] = time.sleep) -> None:
        """With `adopt`, follows an experiment that already runs in the folder of a run, instead of submitting a new
        one."""
        self._client = client
        self._adopt = adopt
        self._sleep = sleep
        self._records: dict[str, RunRecord] = {}
        """By experiment."""
        self._run_dirs: dict[str, Path] = {}
        """By experiment."""
        self._listed: Sequence[ExperimentStatus] | None = None
        """Experiments before the submissions; None if a new request is needed."""
        self._looked_s = 0.0

    def begin(self, tasks: Sequence[Task]) -> Iterator[RunRecord]:
        """Submit all runs that no earlier sweep has submitted."""
        self._listed = None
        for task in tasks:
            record = self._with_retries(partial(self._adopt_or_submit, task, str(uuid4())))
            if record.experiment is not None and not record.over:
                self._records[record.experiment] = record
                self._run_dirs[record.experiment] = task.run.run_dir
            yield record

    def poll(self) -> list[RunRecord]:
        """Ask the coordinator, at most every LOOK_S seconds."""
        if time.monotonic() < self._looked_s + LOOK_S:
            return []
        known = {status.id: status for status in self._with_retries(self._client.status).experiments}
        self._looked_s = time.monotonic()
        news: list[RunRecord] = []
        for experiment, record in list(self._records.items()):
            told = known.get(experiment)
            news.append(_stored(record, self._run_dirs[experiment]) if told is None else _updated(record, told))
            self._records[experiment] = news[-1]
            if news[-1].over:
                del self._records[experiment]
                del self._run_dirs[experiment]
        return news

    def stop_runs(self, names: Collection[str]) -> None:
        self._stop([experiment for experiment, record in self._records.items() if record.name in names])

    def stop(self) -> None:
        """Ask for all runs to be stopped."""
        self._stop(list(self._records))

    def _stop(self, experiments: Sequence[str]) -> None:
        for experiment in experiments:
            with contextlib.suppress(RefusedError):  # it has ended by itself
                self._with_retries(partial(self._client.stop, experiment))

    def _adopt_or_submit(self, task: Task, experiment: str) -> RunRecord:
        """Return the run's existing experiment, or submit a new one with this id. Repeated after a missing answer, the
        call submits nothing twice."""
        if self._listed is None:
            self._listed = self._client.status().experiments if self._adopt else ()
        for status in self._listed:
            if status.run_dir == str(task.run.run_dir):
                ours = status.id == task.record.experiment
                if _STATES[status.state] in ("queued", "running") or (ours and status.state == "finished"):
                    return _updated(replace(task.record, experiment=status.id), status)
        return self._submit(task, experiment)

    def _submit(self, task: Task, experiment: str) -> RunRecord:
        try:
            submitted = self._client.submit(
                with_agents(task.run.loaded.config),
                name=task.run.name,
                run_dir=task.run.run_dir,
                on_exists=task.on_exists,
                provenance=task.run.loaded.provenance,
                experiment=experiment,
            )
        except RefusedError as error:
            if error.code == "protocol":
                raise
            return replace(task.record, state="failed", reason=str(error))
        return replace(task.record, state="queued", experiment=submitted.experiment)

    def _with_retries(self, ask: Callable[[], _T]) -> _T:
        return with_retries(ask, partial(self._sleep, LOOK_S))


def _stored(record: RunRecord, run_dir: Path) -> RunRecord:
    """Return the end and the results of a run in its folder: a coordinator keeps only the last runs to end."""
    found = read_results(run_dir)
    if found is None:
        lost = "the coordinator does not know it any more, and its folder tells no end; sweep again to continue"
        return replace(record, state="failed", reason=lost)
    return replace(
        record,
        state=_STATES[found.state],
        reason=found.reason,
        env_step=found.counters.env_step,
        train_iter=found.counters.train_iter,
        last_return=found.last_return,
        best_return=found.best_return,
        wall_s=found.counters.wall_s,
    )


def _updated(record: RunRecord, status: ExperimentStatus) -> RunRecord:
    return replace(
        record,
        state=_STATES[status.state],
        reason=status.reason or status.waiting_for,
        env_step=status.env_step,
        train_iter=status.train_iter,
        last_return=status.last_return,
        best_return=status.best_return,
        wall_s=status.wall_s,
    )
