"""A run in the coordinator, from queue to end: its policies, its workers, and the actions due after every event.

Every run has one or several policies. The run owns the leases, the workers, the failures and the end; each policy has a
learner, experience, a commander and records of its own. A chunk counts for all policies or for none.

Pure: every method takes an event and a clock reading, and returns steps to be carried out (see effects.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.bill import Meter
from remuda.coordinator.effects import Broken, CloseRun, Step, contained
from remuda.coordinator.experiment.collecting import Collecting
from remuda.coordinator.experiment.ending import ExperimentShutdown, Preemption
from remuda.coordinator.experiment.messages import MessageHandlers
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.coordinator.experiment.workers import ExperimentWorkers, WorkerDemand
from remuda.coordinator.failures import Failures
from remuda.coordinator.leases import LeaseBook, Sender
from remuda.coordinator.scheduler import Demand, Holding
from remuda.coordinator.settings import Hold
from remuda.logbook.tensorboard import results_of
from remuda.training.commander.end import ON_REQUEST, End
from remuda.training.commander.together import end_all, joined_end, last_returns, share_end
from remuda.training.effects import Happened, LogLine
from remuda.training.journal_entry import JournalEntry, Recovered, ResumePoint
from remuda.training.league import League
from remuda.training.run_snapshot import FORMAT, Changes, ExperimentSnapshot, FinishedRun, Identity, Rows, RunSnapshot
from remuda.training.snapshot import LeaseHolder
from remuda.training.status import RunState, joined_status
from remuda.wire.messages import AnyMessage, ChunkMeta, ExperimentState, ExperimentStatus, Phase, Role, Used

GENERATIONS_PER_RUN = 1_000
"""Distance between the generations of a run and of its resumed run: no worker repeats earlier random numbers."""


class Experiment:
    """Holds the coordinator's state of a run and decides the next steps."""

    def __init__(
        self,
        identities: Sequence[Identity],
        config: ExperimentConfig,
        now_s: float,
        resumed: Sequence[ResumePoint | None] = (),
        *,
        serial: bool = False,
    ) -> None:
        """`identities` and `resumed` are of each policy, in the order of names. `serial`: all workers are in this
        process and take turns. The loop of the process calls `begin_tasks`: no task begins between an event and the
        commit of the decisions of callbacks about it."""
        identities = [replace(each, config_json=config.model_dump_json()) for each in identities]
        self.identity = identity = identities[0]
        """With the policy file of the first policy."""
        self.held_up: Hold | None = None
        """None while the disk of the run accepts writes."""
        self.room_sought_s = -math.inf
        """Time of the last search for disk space for its workers."""
        self.longest_s: Mapping[Phase, float] = {"preparing": config.limits.prepare_s, "saving": config.limits.save_s}
        """Time limits of the workers for preparing and saving without progress, by phase."""
        self._config, self._serial, self._has_names = config, serial, bool(identity.policy)
        known = [each for each in resumed if each is not None]
        self._run = RunState(max((each.counters.wall_s for each in known), default=0.0))
        generation = max((each.generation for each in known), default=0) * GENERATIONS_PER_RUN
        self.leases = LeaseBook(generation, on_forget=lambda lease: self._collecting.forget(lease))
        self.failures = Failures()
        self.policies = tuple(
            PolicyTraining(each, config, self._run, self.leases, now_s, begin, policy_index=index, serial=serial)
            for index, (each, begin) in enumerate(zip(identities, resumed or [None] * len(identities), strict=True))
        )
        """In the order of names."""
        self._commanders = [policy.commander for policy in self.policies]
        dispatches, settings = [policy.dispatch for policy in self.policies], config.self_play.league
        league = None if settings is None else League(config, settings)
        for dispatch in dispatches:
            dispatch.together, dispatch.league = dispatches, league
        self.may_redraw = not any(policy.replay.plan.on_policy for policy in self.policies)
        """The journal may lag behind sampling: rows drawn with replacement may be drawn again."""
        self._collecting = Collecting(identity.id, self.policies)
        self._demand = WorkerDemand(identity, config, self.leases, self.failures, now_s)
        self._workers = ExperimentWorkers(identity, self.leases, self.policies, self._collecting)
        staff = self.leases, self._workers, self.policies
        self._shutdown = ExperimentShutdown(identity.id, *staff, save_s=config.limits.save_s, bounded=not serial)
        self._preemption = Preemption(identity.id, self._run, *staff)
        self.meter = Meter(self.leases, [policy.config for policy in self.policies], self._counted, now_s)
        parts = self.policies, self.leases, self.failures, self._collecting, self._workers, self.meter
        self._messages = MessageHandlers(identity.id, self._run, *parts)
        self.refusal = self._messages.refusal
        """Returns the reason why a message about a lease of the experiment cannot be true; None if possible."""
        self._rows_are_journaled = False

    @property
    def state(self) -> ExperimentState:
        """State shown by `remuda status`."""
        return self._run.state

    @property
    def over(self) -> bool:
        """Nothing more will happen."""
        return self._run.over

    @property
    def ending(self) -> End | None:
        """Reason for the end; None while the run continues. A failure counts more than other reasons."""
        return joined_end(self._commanders)

    def status(self, now_s: float) -> ExperimentStatus:
        """Return the status shown by `remuda status`."""
        self.meter.advance(now_s)
        waiting_for = None if self.over else self._explain(now_s)
        known = {policy.identity.policy: policy.status(waiting_for, now_s) for policy in self.policies}
        joined = joined_status(known, last_returns(self._commanders)) if self._has_names else known[""]
        return replace(joined, used=self.meter.used)

    def finished(self, now_s: float) -> FinishedRun:
        """Return the result and the use of a run that is over."""
        return FinishedRun.of(self.identity, self.status(now_s), self.meter.hours)

    def _counted(self) -> Used:
        return Used(
            env_steps=self.policies[0].replay.ledger.env_step,
            updates=sum(policy.flow.computed_iters for policy in self.policies),
            payload_bytes=sum(policy.replay.ledger.payload_bytes for policy in self.policies),
        )

    def _explain(self, now_s: float) -> str | None:
        if self.held_up is not None:
            return f"held up: {self.held_up.explain(now_s)}"
        explained = self._demand.explain(now_s, running=self.state == "running")
        if self._preemption.by and self.ending is None:
            return f"preempted by {self._preemption.by}: {explained or 'its workers hand in and let go'}"
        awaited = self._shutdown.awaits_evaluation
        return f"waits for the evaluation of {awaited}" if explained is None and awaited is not None else explained

    def events(self, happened: Happened, now_s: float) -> list[Step]:
        """Return the entries of the time series for this event."""
        concerned = (each for each in self.policies if happened.policy in (None, each.identity.policy))
        return [step for policy in concerned for step in policy.events(happened, now_s)]

    # --- its workers ---

    def demand(self, now_s: float) -> Demand | None:
        """Return the missing workers, or None. An ending run needs evaluators only, and preempts no run for them."""
        if not self.failures.none and self.failures.rest(now_s)[0]:
            return None
        if self.ending is not None:
            lacks = self._shutdown.lacks_evaluator
            return self._demand.demand(now_s, roles=("evaluator",), preempts=False) if lacks else None
        started = self._run.state != "queued" and not self._preemption.by
        return None if self._preemption.leaves else self._demand.demand(now_s, started=started)

    def holding(self) -> Holding:
        """Return the workers to spare, and those already returning."""
        ends, is_preempted = self.ending is not None, bool(self._preemption.by)
        gives_all = self._config.preemptible and self.state == "running" and not ends and not is_preempted
        return self._demand.holding(keeps=ends or is_preempted, leaves=is_preempted and not ends, gives_all=gives_all)

    @contained
    def wait(self, reason: str | None, now_s: float) -> list[Step]:
        """Set the scheduler's explanation of missing workers; None if complete."""
        news = self._demand.wait(reason, now_s)
        return [LogLine(self.identity.id, reason)] if news and reason else []

    @contained
    def assign(self, holder: LeaseHolder, now_s: float) -> list[Step]:
        """Add a worker chosen by the scheduler. The first worker starts the clock of the run."""
        self._preemption.end(now_s)
        if self.state == "queued":
            self._run.start(now_s)
            for policy in self.policies:
                policy.start(now_s)
        return self._workers.join(holder)

    @contained
    def lend(self, role: Role, count: int, to: str) -> list[Step]:
        """Give workers back for another experiment in need of them."""
        return self._workers.lend(role, count, to)

    @contained
    def preempt(self, by: str, now_s: float) -> list[Step]:
        """Hand in and give all workers back, for a run of higher priority with this name."""
        return self._preemption.begin(by, now_s) + self._do_due(now_s)

    def takes(self, role: Role) -> bool:
        """True if the run still takes a worker of this role. A run that ends takes evaluators only."""
        if self.over or self.ending is not None:
            return not self.over and role == "evaluator" and self._shutdown.lacks_evaluator
        return not self._preemption.leaves and (role != "learner" or self.leases.count("learner") < len(self.policies))

    @contained
    def back(self, number: int, now_s: float) -> list[Step]:
        """Repeat possibly lost messages to a worker that is back after a restart of the coordinator."""
        self.meter.back(number)
        return self._workers.back(number, now_s)

    # --- what happens ---

    def receive(self, message: AnyMessage, sender: Sender, now_s: float) -> list[Step]:
        """Handle a message about an open or closed lease, after `refusal` has accepted it."""
        try:
            return self._messages.receive(message, sender, now_s) + self._do_due(now_s)
        except Exception as error:
            return [Broken.by(error, self.identity.id)]

    @contained
    def worker_gone(self, number: int, why: str, now_s: float, *, handed_in: bool, died: str = "") -> list[Step]:
        """End the lease of a worker that was lost, left, or started a new incarnation. `handed_in`: no data is lost.
        `died`: the end of a process that is dead or seems dead."""
        lease = self.leases.open_leases.get(number)
        if lease is not None and died:
            self.failures.died(lease, died, now_s)
            if (hopeless := self.failures.hopeless_deaths(now_s)) is not None:
                end_all(self._commanders, End(hopeless, hopeless), skip_final_evaluation=True)
        return self._workers.gone(number, why, handed_in=handed_in, died=bool(died)) + self._do_due(now_s)

    @contained
    def stop(self, *, now: bool, explanation: str, now_s: float, nobody_comes: bool = False) -> list[Step]:
        """Stop the run, on request. `nobody_comes`: lost workers will not be replaced."""
        if self.over:
            return []
        self._shutdown.nobody_comes = self._shutdown.nobody_comes or nobody_comes
        hurried = self._shutdown.hurry()
        end_all(self._commanders, End(ON_REQUEST, explanation), skip_final_evaluation=now)
        return hurried + self._do_due(now_s)

    @contained
    def save_now(self, now_s: float) -> list[Step]:
        """Have all learners save their updates since the last checkpoints, unless the run ends."""
        return [step for policy in self.policies for step in policy.save_now(now_s)]

    def break_off(self, reason: str, now_s: float) -> None:
        """Mark the run as failed; no more is written of it."""
        self.meter.advance(now_s)
        self._run.finish(End(reason, reason), now_s)

    @contained
    def tick(self, now_s: float) -> list[Step]:
        """Time has passed."""
        if self._run.over or self._run.state == "queued":
            return []  # the run folder is closed, and its clock has stopped
        reports = [step for policy in self.policies for step in policy.tick(now_s)]
        return reports + self._collecting.tick(now_s) + self._do_due(now_s)

    def _do_due(self, now_s: float) -> list[Step]:
        """Do the due work: rows of progress.txt, saves, the next task, the end, or the next stage of the end."""
        if self._run.over:
            return []
        steps: list[Step] = []
        collects, has_tasks = self._shutdown.stage in ("working", "draining"), False
        for policy in self.policies:
            counters = policy.counters(now_s)
            if due := policy.do_due(counters, now_s, rows_are_due=collects):
                steps += policy.own(due)
            if policy.flow.is_open:
                has_tasks = has_tasks or not policy.commander.curriculum.stays
            else:
                self._shutdown.check_bounds(policy, counters, now_s, preempted=bool(self._preemption.by))
        if has_tasks and not self._serial:
            steps += self.begin_tasks(now_s)
        if self._has_names:
            share_end(self._commanders, self._config.stop.stop_value)
        if self._commanders[0].ending is not None or self._preemption.by:
            steps += self._let_go(now_s)
        for policy in self.policies:
            if policy.callbacks.book.active and not self._run.over:
                steps += policy.callbacks.send_due(policy.counters(now_s), now_s)
        return steps

    def begin_tasks(self, now_s: float) -> list[Step]:
        """Begin the due task in all policies, and tell collectors; later messages repeat the task."""
        env_step = self.policies[0].replay.ledger.env_step
        begun = [step for policy in self.policies for step in policy.own(policy.dispatch.begin_tasks(env_step))]
        collectors = (lease.number for lease in self.leases.ready("collector"))
        return begun + self._collecting.repeat(collectors) if begun else []

    def _let_go(self, now_s: float) -> list[Step]:
        """Do the next stage of the end, or of a preemption."""
        if (end := self.ending) is None:
            return self._preemption.advance(now_s)
        steps = list[Step]()
        if self.state != "queued":
            self._run.state = "stopping"
            steps = self._shutdown.advance(end, now_s)
            if not self._shutdown.complete:
                return steps
        self._run.finish(end, now_s)
        for policy in self.policies:
            steps += policy.last_steps(end, now_s)
        if self._has_names:
            steps.append(CloseRun(self.identity.id, frozenset(), results_of(self.status(now_s))))
        return steps

    def continued(self) -> list[Step]:
        """Return the first steps of a continued run. league.json may be older than the journal."""
        steps = [step for policy in self.policies for step in policy.leftover_files()]
        return steps + self.policies[0].dispatch.write_league()

    # --- for the journal ---

    def entries(
        self, newest_lease: int, now_s: float, *, boot: str = "", with_priorities: bool = True
    ) -> list[JournalEntry]:
        """Return the changes since the last call, an entry for each policy; the first has leases, credit and failures.
        `newest_lease` is the highest number given out."""
        whole, self._rows_are_journaled = not self._rows_are_journaled, True
        return [
            JournalEntry(
                self.identity.id,
                RunSnapshot(FORMAT, replace(policy.identity), self.snapshot(now_s, policy), newest_lease, boot),
                self._changes(policy, now_s, whole=whole),
                *policy.replay.news(),
                policy.replay.index.priorities() if with_priorities else None,
                policy.progress.news(),
            )
            for policy in self.policies
        ]

    def snapshot(self, now_s: float, policy: PolicyTraining | None = None) -> ExperimentSnapshot:
        """Return the state of a policy (None: the first) and of the run for a restarted coordinator, without rows."""
        policy = policy or self.policies[0]
        self.meter.advance(now_s)
        known = policy.snapshot(now_s, self._shutdown.stage, self._shutdown.left_s(now_s))
        if policy.policy_index:
            return known
        return replace(
            known,
            failures=self.failures.in_a_row,
            leases=self.leases.snapshot(),
            workers_failures=self.failures.snapshot(now_s),
            deaths=self.failures.deaths(now_s),
            meter=self.meter.snapshot(),
            preempted_by=self._preemption.by,
        )

    def _changes(self, policy: PolicyTraining, now_s: float, *, whole: bool) -> Changes:
        """Return the rows changed since the last call, or all with `whole`."""
        changes = policy.changes()
        if not policy.policy_index:
            changes = replace(
                changes,
                lease=self.leases.changes(),
                place=self.leases.changed_indices(),
                account=self._collecting.credit.changes(),
                rest=self.failures.changes(now_s),
                hour=self.meter.changes(),
            )
        return self.rows(now_s, policy) if whole else changes

    def rows(self, now_s: float, policy: PolicyTraining | None = None) -> Changes:
        """All rows of a policy (None: the first), with those of the run for the first."""
        policy = policy or self.policies[0]
        if policy.policy_index:
            return policy.rows()
        return replace(
            policy.rows(),
            lease=Rows(self.leases.rows()),
            place=Rows(self.leases.rows_of_indices()),
            account=Rows(self._collecting.credit.rows()),
            rest=Rows(self.failures.rows(now_s)),
            hour=self.meter.rows(),
        )

    # --- after a restart ---

    def restore(self, recovered: Sequence[Recovered], now_s: float) -> None:
        """Continue from the journals of all policies. Leases stay open, since the workers may come back."""
        first, *others = snapshots = [each.snapshot.experiment for each in recovered]
        self._run.restore([each.state for each in snapshots], first.reason, first.wall_s, now_s)
        self._shutdown.enter(first.stage, now_s, first.stage_left_s)
        self.failures.restore(first.workers_failures, first.failures, first.deaths, now_s)
        self.leases.restore([each.leases for each in snapshots])
        for lease in self.leases:
            lease.recovered, lease.ready_s = True, now_s
        self.meter.restore(first.meter, now_s)
        self._preemption.by = first.preempted_by
        self._preemption.pause(now_s)
        self._collecting.credit.restore(first.flow.accounts)
        for policy, each in zip(self.policies, recovered, strict=True):
            policy.restore(each, [lease.number for lease in self.leases], now_s)
        self._rows_are_journaled = not any(each.leases.leases for each in others)  # as earlier versions wrote them

    def resume(self, recovered: Sequence[Recovered], now_s: float, *, late: Iterable[Sequence[ChunkMeta]] = ()) -> None:
        """Continue a resumed run with all earlier experience; the learners start from the checkpoints. `late` chunks
        were written but never announced, or announced but no longer counted; each has the parts of all policies."""
        self.leases.restore([replace(each.snapshot.experiment.leases, leases=[]) for each in recovered])
        ledgers = [each.snapshot.experiment.replay.ledger for each in recovered]
        payload_bytes = sum(ledger.payload_bytes for ledger in ledgers)
        self.meter.resume(Used(env_steps=ledgers[0].env_steps, payload_bytes=payload_bytes))
        parts = list(zip(*late, strict=True)) or [()] * len(self.policies)
        for policy, each, metas in zip(self.policies, recovered, parts, strict=True):
            policy.resume(each, metas, now_s)
