"""Assignment of workers to experiments: leases begin as the scheduler decides, and end with the work."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from remuda.coordinator.bill import by_hour
from remuda.coordinator.catalog import Catalog
from remuda.coordinator.effects import Abandon, Broken, SendToPeer, Step
from remuda.coordinator.events import RecoveredRun
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.journaling import Journaling, adopt
from remuda.coordinator.registry import Registry, Worker
from remuda.coordinator.scheduler import Demand, Grant, Plan, plan
from remuda.coordinator.shares import Active, Past, Shares, accounts_of
from remuda.training.effects import LogLine
from remuda.training.run_snapshot import FinishedRun
from remuda.wire.messages import ROLES, Rejected, Role, Used

LEASES_KEPT = 10_000
"""Leases kept over all runs, so late messages find the run. An active run keeps all open leases and the newest closed
leases (see LeaseBook)."""

GRANTS_PER_TURN = 250
"""Leases opened in one turn. The rest of a large assignment follows in later turns, which keeps every turn short."""

PAUSE_PER_RUN_S = 0.002
"""Pause between two plans, for each active run. A plan takes about 0.06 ms a queued run, so a long queue takes a small
share of the time."""
PAUSE_AFTER_CHANGE_PER_RUN_S = 0.0003
"""The same, for each active run beyond FEW_RUNS, if workers have come or become free, or runs have come or ended:
changes within the pause share a plan."""
FEW_RUNS = 20
"""A plan of so few runs takes about a millisecond."""

_NOTHING_TO_DO = Plan((), {})


class Assignments:
    """The leases of all experiments. The registry knows the holder of a lease; the experiment knows
    the work under it."""

    def __init__(
        self, registry: Registry, catalog: Catalog, journaling: Journaling, shares: Shares, *, newest_lease: int
    ) -> None:
        """`newest_lease` is the highest number possibly used before."""
        self._registry = registry
        self._catalog = catalog
        self._journaling = journaling
        self._shares = shares
        self.hour = 0
        """The present hour, in hours since 1970 (UTC)."""
        self.experiment_ids: dict[int, str] = {}
        """Experiment ids by open or closed lease, so late chunks still find the ledger."""
        self._forget_at = 2 * LEASES_KEPT
        """Lease number at which unused leases are forgotten next."""
        self._torn: set[str] = set()
        """Recovered runs whose workers may know more than the journal."""
        self._dealt: deque[Grant] = deque()
        """Decided assignments, not yet carried out. Further decisions wait until then: an experiment gets the whole
        minimum or nothing."""
        self._planned_s = -math.inf
        """Time of the last plan."""
        self._changed = False
        """True if the herd or the queue has changed since the last plan."""
        self.newest_lease = newest_lease
        """Highest number used so far."""

    def find(self, lease: int) -> Experiment | FinishedRun | None:
        """Return the past or present experiment of this lease."""
        return self._catalog.known.get(self.experiment_ids.get(lease, ""))

    def experiment_of(self, worker: Worker) -> Experiment | None:
        """Return the experiment of this worker."""
        found = self.find(worker.lease)
        return found if isinstance(found, Experiment) else None

    def is_held_up(self, worker: Worker) -> bool:
        """True if the disk of this worker's run accepts no writes."""
        return bool(self._catalog.held_up) and self.experiment_ids.get(worker.lease) in self._catalog.held_up

    def tick(self, now_s: float) -> list[Step]:
        """Continue with earlier decisions, or decide again. Called periodically."""
        if self._dealt:
            return self._carry_out(now_s)
        active = self._catalog.active
        pause_s = PAUSE_PER_RUN_S * len(active)
        if self._changed:
            pause_s = PAUSE_AFTER_CHANGE_PER_RUN_S * max(len(active) - FEW_RUNS, 0)
        return self._decide(active, now_s) if now_s >= self._planned_s + pause_s else []

    def schedule(self, now_s: float) -> list[Step]:
        """Decide about a changed herd or queue, at once or in the tick after the pause."""
        self._changed = True
        return [] if self._dealt else self.tick(now_s)

    def take_back(self, worker: Worker) -> None:
        """Take the lease away from a worker. The next tick decides about the free worker."""
        self._registry.take_back(worker)
        self._changed = True

    def _decide(self, active: Sequence[Experiment], now_s: float) -> list[Step]:
        """Give free workers to experiments in need. A held-up experiment neither gets nor returns workers: messages to
        the workers wait for the disk."""
        self._planned_s, self._changed = now_s, False
        wishes = [(each, it) for each in active if each.held_up is None and (it := each.demand(now_s)) is not None]
        decided = self._plan(wishes, active) if wishes else _NOTHING_TO_DO
        steps: list[Step] = []
        for experiment in active:
            steps += experiment.wait(decided.waiting.get(experiment.identity.id), now_s)
        for lent in decided.returns:
            self._journaling.touched.add(lent.holder)
            to = self._catalog[lent.waiting].identity.name
            steps += self._catalog[lent.holder].lend(lent.role, lent.count, to)
        for preemption in decided.preemptions:
            self._journaling.touched.add(preemption.holder)
            by = self._catalog[preemption.waiting].identity.name
            steps += self._catalog[preemption.holder].preempt(by, now_s)
        self._dealt.extend(decided.grants)
        return steps + self._carry_out(now_s)

    def begin_hour(self, active: Iterable[Experiment], hour: int, now_s: float) -> None:
        """Note the use of the hour before, if this hour is new. A clock that is set back changes nothing."""
        self.hour = max(hour, self.hour)
        for experiment in active:
            if hour > (before := experiment.meter.hour):
                self._note_use(experiment, before, experiment.meter.begin_hour(hour, now_s))
                self._journaling.touched.add(experiment.identity.id)

    def end(self, worker: Worker, why: str, now_s: float, *, handed_in: bool = False, died: str = "") -> list[Step]:
        """End the lease of a worker, if any. `handed_in`: all collected data is announced. `died`: the end of a process
        that is dead or seems dead."""
        experiment, lease = self.experiment_of(worker), worker.lease
        self.take_back(worker)
        if experiment is None:
            return []
        self._journaling.touched.add(experiment.identity.id)
        return experiment.worker_gone(lease, why, now_s, handed_in=handed_in, died=died)

    def dismiss(self, worker: Worker, why: str, now_s: float) -> list[Step]:
        """Remove a worker from the herd. The process ends, and the nanny starts it again."""
        steps = self.end(worker, why, now_s)
        self._registry.remove(worker)
        return [*steps, SendToPeer(worker.peer, Rejected("dismissed", why))]

    def break_off(self, broken: Broken, now_s: float) -> list[Step]:
        """End this run as failed, whatever the state: workers leave as fast as possible."""
        experiment = self._catalog.active_experiment(broken.experiment)
        if experiment is None:
            return []
        holders = [self._registry.holders.get(lease) for lease in experiment.leases.open_leases]
        experiment.break_off(broken.reason, now_s)
        text = f"has failed: {broken.reason}\n{broken.traceback}".strip()
        steps: list[Step] = [LogLine(broken.experiment, text, "error")]
        for worker in holders:
            if worker is not None:
                steps += self.dismiss(worker, "its run has failed", now_s)
        self._journaling.forget(broken.experiment)
        finished = self.retire(broken.experiment, now_s)
        return [*steps, Abandon(broken.experiment, finished), *self.schedule(now_s)]

    def retire(self, id: str, now_s: float) -> FinishedRun:
        """Note the use of a run that is over; only the result is kept."""
        experiment = self._catalog[id]
        self._changed = True
        self._note_use(experiment, experiment.meter.hour, experiment.meter.present)
        return self._catalog.retire(id, now_s)

    def restore(self, run: RecoveredRun, now_s: float, *, late: bool = False) -> list[Step]:
        """Continue a recovered run, count its chunks in data/, and note its use.

        The leases stay open, since the workers may come back. Leases end if the last moments of the journal may be
        lost, since the workers then know more than the journal, or if the run is recovered `late`, since the workers
        were already sent away.
        """
        experiment = run.experiment
        self.newest_lease = max(self.newest_lease, run.snapshot.leases)
        self._know_leases(experiment, self.experiment_ids)
        self._forget_old()
        if late or not self._journaling.is_whole(run.snapshot):
            self._torn.add(experiment.identity.id)
        else:
            for lease in experiment.leases:
                self._registry.expect(lease.holder, experiment.longest_s, now_s)
        if run.uncounted:
            self._journaling.touched.add(experiment.identity.id)
        steps = [step for metas in run.uncounted for step in adopt(experiment, metas, now_s)]
        for hour, used in by_hour(experiment.meter.closed).items():
            self._note_use(experiment, hour, used)
        return steps

    def end_left_over(self, now_s: float) -> list[Step]:
        """End leases without a worker, once all runs are recovered: all leases of a run with an incomplete journal, and
        a lease whose worker had just moved to another run according to the journal of that run."""
        steps: list[Step] = []
        for experiment in self._catalog.active:
            for lease in list(experiment.leases.open_leases):
                if self._registry.holders.get(lease) is None:
                    self._journaling.touched.add(experiment.identity.id)
                    torn = experiment.identity.id in self._torn
                    why = "the coordinator does not know all it did" if torn else "it had gone on to another run"
                    steps += experiment.worker_gone(lease, why, now_s, handed_in=not torn)
        return steps

    def read_shares(self) -> Shares:
        """Return the shares with the present use of all runs."""
        runs = self._catalog.unretired
        self._shares.read((Active(each.identity, each.meter.present, len(each.leases)) for each in runs), self.hour)
        return self._shares

    def _note_use(self, experiment: Experiment, hour: int, used: Used) -> None:
        self._shares.note(Past(experiment.identity.user, experiment.identity.project, hour, used))

    def _plan(self, wishes: Sequence[tuple[Experiment, Demand]], active: Sequence[Experiment]) -> Plan:
        shares, demands, refused = self.read_shares(), list[Demand](), dict[str, str]()
        for each, wish in wishes:
            why = shares.refusal(each.identity)
            if why is not None and not wish.started:
                refused[wish.experiment] = why
                continue
            wanted = wish.wanted if why is None else wish.minimum
            accounts = accounts_of(each.identity.user, each.identity.project)
            share_hours = shares.share_hours(each.identity)
            demands.append(replace(wish, wanted=wanted, accounts=accounts, share_hours=share_hours))
        held = (each for each in active if each.held_up is None)
        holdings = [replace(each.holding(), share_hours=shares.share_hours(each.identity)) for each in held]
        herd: dict[Role, int] = {role: self._registry.count(role) for role in ROLES}
        free: dict[Role, Collection[str]] = {role: self._registry.free(role) for role in ROLES}
        planned = plan(demands, free, holdings, herd, shares.room())
        return replace(planned, waiting={**planned.waiting, **refused})

    def _carry_out(self, now_s: float) -> list[Step]:
        steps: list[Step] = []
        for _ in range(min(len(self._dealt), GRANTS_PER_TURN)):
            steps += self._assign(self._dealt.popleft(), now_s)
        return steps

    def _assign(self, grant: Grant, now_s: float) -> list[Step]:
        """Assign a worker, unless it has left since the decision, or the experiment ends or is held up."""
        worker, experiment = self._registry.find(grant.worker), self._catalog.known.get(grant.experiment)
        if worker is None or worker.lease or not isinstance(experiment, Experiment):
            return []
        if experiment.held_up is not None or not experiment.takes(grant.role):
            return []
        self.newest_lease += 1
        self._registry.give(worker, self.newest_lease, experiment.longest_s, now_s)
        self.experiment_ids[self.newest_lease] = grant.experiment
        self._forget_old()
        self._journaling.touched.add(grant.experiment)
        return experiment.assign(worker.holder, now_s)

    def _forget_old(self) -> None:
        """Forget leases without further messages. Called rarely, since the cost grows with all leases."""
        if len(self.experiment_ids) < self._forget_at:
            return
        kept = {lease: self.experiment_ids[lease] for lease in sorted(self.experiment_ids)[-LEASES_KEPT:]}
        for experiment in self._catalog.active:
            self._know_leases(experiment, kept)
        self.experiment_ids = kept
        self._forget_at = len(kept) + LEASES_KEPT

    @staticmethod
    def _know_leases(experiment: Experiment, experiment_ids: dict[int, str]) -> None:
        """Add the open leases of an experiment, and the newest closed ones."""
        experiment_ids |= dict.fromkeys(experiment.leases.numbers, experiment.identity.id)
