"""How many workers an experiment lacks, and how many it could give back: the input of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.failures import Failures
from remuda.coordinator.leases import LeaseBook
from remuda.coordinator.scheduler import Demand, Holding
from remuda.policy.algorithms import reanalyzed_by_workers
from remuda.training.identity import Identity
from remuda.wire.messages import ROLES, Role

PATIENCE_S = 3.0
"""How long an experiment waits for workers that come by themselves before others must give some back: long enough for a
herd to assemble, or for a nanny to restart a worker."""
OVERTAKEN_FIRST_S = 60.0
"""How long others may overtake an experiment at first. Then free workers are kept for it for the same time, and so on
in turn, each time for twice as long."""


_MAY_LACK: tuple[Role, ...] = ("collector", "reanalyzer")
"""Roles without all of which a run goes on."""


class WorkerDemand:
    """Compares what an experiment holds with what it wants, and keeps since when it waits."""

    def __init__(
        self, identity: Identity, config: ExperimentConfig, leases: LeaseBook, failures: Failures, now_s: float
    ) -> None:
        self._identity = identity
        self._leases = leases
        self._failures = failures
        evaluator, collector = config.evaluator, config.collector
        evaluates = evaluator.episodes > 0
        self._wanted: dict[Role, int] = {
            "learner": 1,
            "collector": collector.count,
            "evaluator": evaluator.count if evaluates else 0,
            "reanalyzer": 0 if reanalyzed_by_workers(config) is None else config.reanalyzer.count,
        }
        self._minimum: dict[Role, int] = {
            "learner": 1,
            "collector": collector.minimum,
            "evaluator": int(evaluates),
            "reanalyzer": 0,
        }
        """Without these the experiment cannot work."""
        self._waiting_for: str | None = None
        self._waits_since_s = now_s

    def demand(self, now_s: float, *, started: bool = True, roles: Sequence[Role] = ROLES) -> Demand | None:
        """Workers that it still needs in these roles; None if it needs none."""
        missing: dict[Role, int] = {role: max(self._wanted[role] - self._leases.count(role), 0) for role in roles}
        if not any(missing.values()):
            return None
        at_work = {role: self._leases.count_staying(role) for role in roles}
        lacking: dict[Role, int] = {
            role: min(max(self._minimum[role] - at_work[role], 0), missing[role]) for role in roles
        }
        return Demand(
            self._identity.id,
            self._identity.priority,
            self._identity.submitted,
            lacking,
            missing,
            started=started,
            patient=self._waiting_for is None or now_s - self._waits_since_s < PATIENCE_S,
            yields=self._waiting_for is None or may_be_overtaken(now_s - self._waits_since_s),
            resting=self._failures.resting(now_s),
        )

    def holding(self, *, keeps: bool) -> Holding:
        """Workers that it could give back (none if it `keeps` all), and how many it is giving back already."""
        surplus: dict[Role, int] = {
            role: 0 if keeps else max(self._leases.count_staying(role) - self._minimum[role], 0) for role in ROLES
        }
        leaving: dict[Role, int] = {role: self._leases.count(role) - self._leases.count_staying(role) for role in ROLES}
        identity = self._identity
        return Holding(identity.id, identity.name, identity.priority, identity.submitted, surplus, leaving)

    def wait(self, reason: str | None, now_s: float) -> bool:
        """Set what the scheduler says that it waits for, None for nothing; returns True if it waited for nothing
        before."""
        news = reason is not None and self._waiting_for is None
        if news:
            self._waits_since_s = now_s
        self._waiting_for = reason
        return news

    def explain(self, now_s: float, *, running: bool) -> str | None:
        """What it waits for; or that it works with fewer workers than it asked for, or takes none for a while."""
        if self._waiting_for is not None:
            return self._waiting_for
        rest_s = self._failures.rest_s(now_s)
        if rest_s:
            return f"takes no workers for {rest_s:.0f} s: {self._failures.in_a_row} failures in a row"
        counts = [(self._leases.count_staying(role), self._wanted[role], role) for role in _MAY_LACK]
        lacks = [f"{held} of {wanted} {role}s" for held, wanted, role in counts if held < wanted]
        return f"runs with {' and '.join(lacks)}" if running and lacks else None


def may_be_overtaken(waited_s: float) -> bool:
    """Whether an experiment that has waited for this time lets others have the free workers, which are too few for
    itself.

    So workers are kept idle for it at most half of the time, and its wait ends: once free workers are kept for longer
    than the runs of others take, all their workers become free, and it begins. If no run takes longer than D seconds,
    it begins within 8 D seconds (or three minutes, if that is longer).
    """
    length_s = OVERTAKEN_FIRST_S
    while waited_s >= 2 * length_s:
        waited_s -= 2 * length_s
        length_s *= 2
    return waited_s < length_s
