"""Runs a search to its end: asks for trials, makes their runs, reports, prunes and finishes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from remuda.client.sweeps.plan import POLL_S, Executor, Task
from remuda.client.sweeps.record import RunRecord, SweepBook
from remuda.client.sweeps.space import Search
from remuda.config.errors import ConfigError

if TYPE_CHECKING:  # it imports optuna
    from remuda.client.sweeps.study import Study, Trial

GIVEN_UP = "pruned: other trials were better"


@dataclass
class _OpenTrial:
    """A running trial, with the newest records of its runs."""

    number: int
    runs: dict[str, RunRecord]
    reported_step: int = 0
    given_up: bool = False


class SearchLoop:
    """Asks for trials, and follows their runs."""

    def __init__(
        self,
        search: Search,
        study: Study,
        executor: Executor,
        book: SweepBook,
        *,
        tasks_of: Callable[[Trial], tuple[Sequence[RunRecord], Sequence[Task]]],
        name_of: Callable[[Trial], str],
        report_every_env_steps: int,
        on_change: Callable[[Sequence[RunRecord]], None],
    ) -> None:
        """`tasks_of` plans the runs of a trial, and returns their records and the remaining tasks. If `tasks_of` raises
        ConfigError for contradicting settings, the trial counts as failed, under the name of `name_of`."""
        self._name_of = name_of
        self._search, self._study, self._executor, self._book = search, study, executor, book
        self._tasks_of, self._every, self._on_change = tasks_of, report_every_env_steps, on_change
        self._open: list[_OpenTrial] = []

    def run(self, *, ending: Callable[[], bool], sleep: Callable[[float], None] = time.sleep) -> None:
        """Return when all trials are over, or, once `ending`, when all started runs are: the trials under way go on
        with the next search in the folder."""
        left = [trial for trial in self._study.trials if trial.state == "running"]
        stopping = False
        while True:
            if ending() and not stopping:
                stopping = True
                self._executor.stop()
            while not stopping and len(self._open) < self._search.at_once and (trial := self._next(left)):
                self._begin(trial)
            if not self._open or (stopping and not any(self._goes_on(one) for one in self._open)):
                return
            self._note(self._executor.poll())
            self._update_trials(stopping=stopping)
            sleep(POLL_S)

    def _next(self, left: list[Trial]) -> Trial | None:
        if left:
            return left.pop(0)
        return self._study.ask() if len(self._study.trials) < self._search.trials else None

    def _begin(self, trial: Trial) -> None:
        try:
            records, todo = self._tasks_of(trial)
        except ConfigError as error:
            self._fail(trial, str(error))
            return
        self._open.append(_OpenTrial(trial.number, {record.name: record for record in records}))
        self._book.write(records)
        self._on_change(records)
        self._note(list(self._executor.begin(todo)))

    def _fail(self, trial: Trial, why: str) -> None:
        self._study.tell(trial.number, "failed")
        name = self._name_of(trial)
        record = RunRecord(
            name=name,
            variant=name,
            seed=0,
            settings=dict(trial.settings),
            run_dir="",
            state="failed",
            reason=why,
        )
        self._book.write([record])
        self._on_change([record])

    def _note(self, news: Sequence[RunRecord]) -> None:
        told: list[RunRecord] = []
        for record in news:
            for trial in self._open:
                former = trial.runs.get(record.name)
                if former is None:
                    continue
                given_up = trial.given_up and record.state == "stopped"
                said = replace(record, reason=GIVEN_UP) if given_up else record
                trial.runs[record.name] = said
                told.append(said)
                if (former.state, former.experiment) != (said.state, said.experiment):
                    self._book.write([said])
        if told:
            self._on_change(told)

    def _update_trials(self, *, stopping: bool) -> None:
        """Report progress, prune bad trials, and finish trials whose runs are over."""
        for trial in list(self._open):
            self._report(trial)
            records = list(trial.runs.values())
            if not all(record.over for record in records):
                continue
            if stopping and not trial.given_up and any(record.state == "stopped" for record in records):
                continue  # it goes on with the next search
            self._finish(trial, records)
            self._open.remove(trial)

    def _report(self, trial: _OpenTrial) -> None:
        """Report at whole numbers of intervals, so that trials are compared after the same number of steps."""
        records = list(trial.runs.values())
        step = min(record.env_step for record in records) // self._every * self._every
        returns = [record.last_return for record in records if record.last_return is not None]
        if step <= trial.reported_step or len(returns) < len(records):
            return
        trial.reported_step = step
        worse = self._study.report(trial.number, step, sum(returns) / len(returns))
        if worse and not all(record.over for record in records):
            trial.given_up = True
            self._executor.stop_runs([record.name for record in records if not record.over])

    def _finish(self, trial: _OpenTrial, records: Sequence[RunRecord]) -> None:
        if trial.given_up:
            self._study.tell(trial.number, "pruned")
            return
        value = objective(records, self._search.objective)
        failed = value is None or any(record.state == "failed" for record in records)
        self._study.tell(trial.number, "failed" if failed else "complete", value)

    def _goes_on(self, trial: _OpenTrial) -> bool:
        return any(record.state in ("queued", "running") for record in trial.runs.values())


def objective(records: Sequence[RunRecord], which: str) -> float | None:
    """Return the mean of the runs' best or last mean evaluation returns; None if a run has no evaluation."""
    values = [record.best_return if which == "best" else record.last_return for record in records]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
