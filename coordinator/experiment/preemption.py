"""Preemption: a run gives all its workers to a run of higher priority, after handing in everything, and waits again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.coordinator.experiment.workers import ExperimentWorkers
from remuda.coordinator.leases import LeaseBook
from remuda.coordinator.scheduler import Holding
from remuda.training.effects import LogLine
from remuda.training.status import RunState
from remuda.wire.messages import ROLES, ExperimentState, Role

_LAST: tuple[Role, ...] = ("learner", "evaluator", "inference")
"""These work until all collectors have handed in."""


class Preemption:
    """Collectors hand in their chunks, learners stop and save, then all workers let go.

    Each next action follows from the journaled leases and saves, so a restarted coordinator continues. A worker that
    does not answer is dismissed like any worker: for a lost learner, the newest checkpoint counts.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        experiment: str,
        leases: LeaseBook,
        workers: ExperimentWorkers,
        policies: Sequence[PolicyTraining],
    ) -> None:
        self._is_allowed = config.preemptible
        self._experiment, self._leases, self._workers = experiment, leases, workers
        self._policies = policies
        self.by = ""
        """Name of the run that needs the workers; empty for a run that was not preempted, or works again."""

    @property
    def leaves(self) -> bool:
        """True while workers hand in and let go."""
        return bool(self.by) and len(self._leases) > 0

    @property
    def waits(self) -> bool:
        """True once all workers are gone, until there are workers again."""
        return bool(self.by) and not len(self._leases)

    def begin(self, by: str, now_s: float) -> list[Step]:
        """Have collectors hand in, and learners save; a learner in preparation has nothing to save."""
        self.by = by
        reason = f"{by} has a higher priority"
        steps: list[Step] = [LogLine(self._experiment, f"hands in and gives all workers back: {reason}")]
        steps += [*self._workers.drain("collector", reason), *self._workers.drain("reanalyzer", reason)]
        steps += self._workers.drain("learner", reason, preparing=True)
        return [*steps, *(step for policy in self._policies for step in policy.hand_in(now_s))]

    def holding(self, held: Holding, state: ExperimentState) -> Holding:
        """Add the workers that are leaving, or that a preemption would give back."""
        everyone = {role: self._leases.count(role) for role in ROLES}
        if self.by:
            return replace(held, leaving=everyone)
        return replace(held, preemptible=everyone) if self._is_allowed and state == "running" else held

    def explain(self, why: str | None) -> str:
        """Return the reason for the wait; `why` is the scheduler's."""
        return f"preempted by {self.by}: {why or 'its workers hand in and let go'}"

    def end(self, run: RunState, now_s: float) -> None:
        """A first worker comes again."""
        if self.waits:
            self.by = ""
            run.start(now_s)

    def pause(self, run: RunState, now_s: float) -> None:
        """Stop the clock of the run once all workers are gone."""
        if self.waits and run.since_s is not None:
            run.pause(now_s)

    def advance(self, run: RunState, now_s: float) -> list[Step]:
        """Let all others go once all collectors have handed in and everything is saved; only for a preempted run."""
        self.pause(run, now_s)
        if self._leases.count("collector") or any(policy.is_saving for policy in self._policies):
            return []
        last: list[Role] = [role for role in _LAST if self._leases.count_staying(role)]
        return [step for role in last for step in self._workers.drain(role, f"{self.by} has a higher priority")]
