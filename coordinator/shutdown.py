"""The end of a coordinator: all runs stop and all workers leave, or the runs wait for the next start."""

from __future__ import annotations

from remuda.coordinator.catalog import Catalog
from remuda.coordinator.effects import Exit, Reply, SendToPeer, Step
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.journaling import Journaling
from remuda.coordinator.registry import Registry
from remuda.training.effects import LogLine
from remuda.wire.messages import Leave, Register, Rejected, shortened

HELD_UP_S = 10.0
"""Time for which a shutdown waits for a run with a disk that accepts no writes, or with a folder in preparation. The
next coordinator recovers this run."""
LEAVING_S = 5.0
"""Time for which a shutdown waits for all workers to leave."""


class CoordinatorShutdown:
    """Open until the end is asked for, or nothing has been left to do for a while."""

    def __init__(
        self, catalog: Catalog, registry: Registry, journaling: Journaling, *, idle_end_s: float | None = None
    ) -> None:
        """`idle_end_s`: time without a run until the coordinator ends by itself; None: never."""
        self._catalog = catalog
        self._registry = registry
        self._journaling = journaling
        self._idle_end_s = idle_end_s
        self._idle_since_s: float | None = None
        self.reason: str | None = None
        """Reason for the end; None before a request."""
        self._begun_s = 0.0
        self._leave_sent_s: float | None = None

    def refusal(self, worker: Register | None = None) -> list[Step]:
        """Return the answer to a late client or worker. Empty before the end begins, and for a worker with an open
        lease: unfinished work still counts."""
        if self.reason is None or (worker is not None and self._holds_lease(worker)):
            return []
        return [Reply(Rejected("closing", f"the coordinator is shutting down: {self.reason}"))]

    def _holds_lease(self, worker: Register) -> bool:
        """True if the named lease is open and held by this process."""
        holder = self._registry.holders.get(worker.lease)
        return holder is not None and holder.uuid == worker.worker and holder.is_process(worker)

    def begin(self, reason: str, now_s: float) -> list[Step]:
        """Stop every run; at once if asked for the second time."""
        hurry = self.reason is not None
        if not hurry:
            self._begun_s = now_s
        self.reason = self.reason or reason
        steps: list[Step] = [LogLine(None, f"shutting down: {reason}")]
        for experiment in self._catalog.active:
            steps += self._stop(experiment, now=hurry, now_s=now_s)
        return steps

    def added(self, experiment: Experiment, now_s: float) -> list[Step]:
        """Stop an experiment that was added to the catalog after the end began."""
        return [] if self.reason is None or experiment.over else self._stop(experiment, now=False, now_s=now_s)

    def _stop(self, experiment: Experiment, *, now: bool, now_s: float) -> list[Step]:
        self._journaling.touched.add(experiment.identity.id)
        explained = f"the coordinator is shutting down: {self.reason}"
        return experiment.stop(now=now, explanation=explained, now_s=now_s, nobody_comes=True)

    def tick(self, now_s: float) -> list[Step]:
        """Once every experiment is over, send the workers away and end after they have left."""
        if self.reason is None and self._idle_end_s is not None and self._idle_for_long(self._idle_end_s, now_s):
            return self.begin(f"there has been no run for {self._idle_end_s:g} s", now_s)
        if self.reason is None or any(self._is_waited_for(each, now_s) for each in self._catalog.active):
            return []
        if self._catalog.preparing and not self._is_late(now_s):
            return []
        if self._leave_sent_s is None:
            self._leave_sent_s = now_s
            leave = Leave(shortened(f"the coordinator ends: {self.reason}"))
            return [SendToPeer(worker.peer, leave) for worker in self._registry]
        if len(self._registry) == 0 or now_s - self._leave_sent_s > LEAVING_S:
            return [Exit()]
        return []

    def _idle_for_long(self, longest_s: float, now_s: float) -> bool:
        if self._catalog.active or self._catalog.preparing:
            self._idle_since_s = None
            return False
        self._idle_since_s = now_s if self._idle_since_s is None else self._idle_since_s
        return now_s - self._idle_since_s > longest_s

    def _is_waited_for(self, experiment: Experiment, now_s: float) -> bool:
        return experiment.held_up is None or not self._is_late(now_s)

    def _is_late(self, now_s: float) -> bool:
        """True once the wait for a disk that does not answer is over."""
        return now_s - self._begun_s > HELD_UP_S


class Handover:
    """Waits for `begin`. Afterwards workers are served as before, until everything is saved.

    Workers do not leave: they wait for the next coordinator, as after a crash.
    """

    def __init__(self, catalog: Catalog, journaling: Journaling) -> None:
        self._catalog = catalog
        self._journaling = journaling
        self._begun = False

    def begin(self, reason: str, now_s: float) -> list[Step]:
        """Have every learner save its updates since the last checkpoint."""
        self._begun = True
        steps: list[Step] = [LogLine(None, f"handing over to the next start: {reason}")]
        for experiment in self._catalog.active:
            self._journaling.touched.add(experiment.identity.id)
            steps += experiment.save_now(now_s)
        return steps

    def tick(self) -> list[Step]:
        """End once no save is under way. A run whose disk accepts no writes is not waited for."""
        if not self._begun:
            return []
        active = (each for each in self._catalog.active if each.held_up is None)
        return [] if any(policy.dispatch.is_saving for each in active for policy in each.policies) else [Exit()]
