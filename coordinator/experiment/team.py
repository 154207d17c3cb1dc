"""A run with several policies in the coordinator: an experiment per policy, with shared collectors and evaluators.

Every policy is an ordinary Experiment with a learner, replay, commander and journal. A lease of a collector or an
evaluator is open in every experiment, under one number. The team passes a message of a shared worker to the experiments
concerned, and joins the answers into a single message. A chunk counts for all policies or not at all. Pure, as
Experiment is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import (
    CloseRun,
    DeleteChunks,
    PolicyEffect,
    Release,
    Reply,
    RewindCurves,
    SendToLease,
    Step,
    refused,
)
from remuda.coordinator.experiment.experiment import Experiment, adopted, guarded
from remuda.coordinator.leases import Sender
from remuda.coordinator.limits import Hold
from remuda.coordinator.scheduler import Demand, Holding
from remuda.logbook.reports import EventReport
from remuda.logbook.tensorboard import results_of
from remuda.training.commander.end import ON_REQUEST, End
from remuda.training.commander.together import all_solved, joined_counters, last_returns, mean_return
from remuda.training.effects import (
    Emit,
    Happened,
    LogLine,
    RecordCheckpoint,
    RecordReward,
    WriteProgress,
    WriteTimers,
)
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import (
    ROLES,
    AnyMessage,
    Assign,
    ChunkMeta,
    ChunkReady,
    CollectorReport,
    Counters,
    Drain,
    EvaluationDone,
    ExperimentState,
    ExperimentStatus,
    PolicyStatus,
    Role,
)

T = TypeVar("T")
PASSES = 2
"""Rounds of due work over all policies: the work of a policy may be awaited by another."""


class Team:
    """State of a run with several policies. See Experiment for the methods of the same names."""

    def __init__(self, config: ExperimentConfig, members: Mapping[str, Experiment]) -> None:
        """`members` by the names of their policies, sorted."""
        self.members = tuple(members.values())
        self._names = tuple(members)
        self._lead = self.members[0]
        self.replay = self._lead.replay
        """Replay of the first policy."""
        self.identity = self._lead.identity
        """With the file of the first policy; all else is the run's."""
        self.config_json = self._lead.config_json
        self.held_up: Hold | None = None
        self.room_sought_s = -math.inf
        self.longest_s = self._lead.longest_s
        self.may_redraw = all(member.may_redraw for member in self.members)
        self._stop_value = config.stop.stop_value
        self._commanders = [member.parts.commander for member in self.members]
        self._closed = False
        flows = [member.parts.flow for member in self.members]
        shutdowns = [member.parts.shutdown for member in self.members]
        for flow, shutdown in zip(flows, shutdowns, strict=True):
            flow.join(flows)
            shutdown.together = shutdowns
        dispatches = [member.parts.dispatch for member in self.members]
        for dispatch in dispatches:
            dispatch.play_beside(dispatches)

    # --- how it stands ---

    @property
    def state(self) -> ExperimentState:
        states = [member.state for member in self.members]
        if self.over or "stopping" in states:
            return self._lead.state if self.over else "stopping"
        if all(state == "queued" for state in states):
            return "queued"
        return "running" if all(state == "running" for state in states) else "starting"

    @property
    def over(self) -> bool:
        return all(member.over for member in self.members)

    def status(self, now_s: float) -> ExperimentStatus:
        known = [member.status(now_s) for member in self.members]
        counters = self._counters(now_s)
        waits = _first(one.waiting_for for one in known)
        if self.held_up is not None and not self.over:
            waits = f"held up: {self.held_up.explain(now_s)}"
        return replace(
            known[0],
            state=self.state,
            env_step=counters.env_step,
            train_iter=counters.train_iter,
            episode=counters.episode,
            policy_version=counters.policy_version,
            train_iters_per_s=sum(one.train_iters_per_s for one in known),
            last_return=mean_return(last_returns(self._commanders)),
            best_return=None,
            policy_lag=max(one.policy_lag for one in known),
            samples_per_insert=None,
            waiting_for=waits,
            policies=[
                PolicyStatus(
                    name, one.train_iter, one.episode, one.policy_version, one.last_return, one.best_return,
                    one.train_iters_per_s, one.policy_lag, one.samples_per_insert,
                )
                for name, one in zip(self._names, known, strict=True)
            ],
        )  # fmt: skip

    def event(self, happened: Happened, now_s: float) -> EventReport:
        return happened.report(self._counters(now_s))

    def work_share(self, worker: str) -> float | None:
        return _first(member.work_share(worker) for member in self.members)

    # --- its workers ---

    def demand(self, now_s: float) -> Demand | None:
        """Demand a learner per policy, and workers of the remaining roles for the run as a whole."""
        demands = [demand for member in self.members if (demand := member.demand(now_s)) is not None]
        if not demands:
            return None
        return Demand(
            self.identity.id,
            self.identity.priority,
            self.identity.submitted,
            _joined([demand.minimum for demand in demands]),
            _joined([demand.wanted for demand in demands]),
            started=self.state != "queued",
            patient=all(demand.patient for demand in demands),
            yields=all(demand.yields for demand in demands),
            resting=frozenset(role for demand in demands for role in demand.resting),
        )

    def holding(self) -> Holding:
        held = [member.holding() for member in self.members]
        surplus: dict[Role, int] = {role: min(one.surplus[role] for one in held) for role in ROLES}
        leaving: dict[Role, int] = {role: max(one.leaving.get(role, 0) for one in held) for role in ROLES}
        identity = self.identity
        return Holding(identity.id, identity.name, identity.priority, identity.submitted, surplus, leaving)

    @guarded
    def wait(self, reason: str | None, now_s: float) -> list[Step]:
        return self._of_all(now_s, [member.wait(reason, now_s) for member in self.members])

    @guarded
    def assign(self, holder: LeaseHolder, now_s: float) -> list[Step]:
        for member in self.members:
            member.start(now_s)
        if holder.role != "learner":
            return self._of_all(now_s, [member.assign(holder, now_s) for member in self.members])
        for policy_index, member in enumerate(self.members):
            if _lacks_learner(member):
                return self._of_policy(policy_index, member.assign(holder, now_s), now_s)
        raise AssertionError("a learner that no policy lacks is not taken")

    @guarded
    def lend(self, role: Role, count: int, to: str) -> list[Step]:
        return self._of_all(0.0, [member.lend(role, count, to) for member in self.members])

    def takes(self, role: Role) -> bool:
        return any(member.takes(role) and (role != "learner" or _lacks_learner(member)) for member in self.members)

    @guarded
    def back(self, number: int, now_s: float) -> list[Step]:
        return [
            step
            for policy_index, member in self._members_of_lease(number)
            for step in self._of_policy(policy_index, member.back(number, now_s), now_s)
        ]

    @property
    def lease_numbers(self) -> list[int]:
        return sorted({number for member in self.members for number in member.lease_numbers})

    @property
    def holders(self) -> list[LeaseHolder]:
        return list({holder.lease: holder for member in self.members for holder in member.holders}.values())

    # --- what happens ---

    def refusal(self, message: AnyMessage, sender: Sender) -> str | None:
        """Refuse a chunk if any part is refused."""
        match message:
            case ChunkReady():
                return _chunk_refusal(self.members, message, sender)
            case CollectorReport() | EvaluationDone() if message.policy_index >= len(self.members):
                return f"it speaks of policy {message.policy_index}, and there are {len(self.members)}"
            case _:
                return _first(member.refusal(message, sender) for _, member in self._members_for(message))

    @guarded
    def receive(self, message: AnyMessage, sender: Sender, now_s: float) -> list[Step]:
        if isinstance(message, ChunkReady):
            steps = self._chunk(message, sender, now_s)
        else:
            steps = [
                step
                for policy_index, member in self._members_for(message)
                for step in self._of_policy(policy_index, member.receive(message, sender, now_s), now_s)
            ]
        return steps + self._end_together(now_s)

    @guarded
    def worker_gone(self, number: int, why: str, now_s: float, *, handed_in: bool, died: str = "") -> list[Step]:
        steps = [
            step
            for policy_index, member in self._members_of_lease(number)
            for step in self._of_policy(
                policy_index, member.worker_gone(number, why, now_s, handed_in=handed_in, died=died), now_s
            )
        ]
        return steps + self._end_together(now_s)

    @guarded
    def stop(self, *, now: bool, explanation: str, now_s: float, nobody_comes: bool = False) -> list[Step]:
        for member in self.members:  # before any of them goes on: they end together
            if not member.over:
                member.parts.commander.end(End(ON_REQUEST, explanation), skip_final_evaluation=now)
        stopped = [
            member.stop(now=now, explanation=explanation, now_s=now_s, nobody_comes=nobody_comes)
            for member in self.members
        ]
        return self._of_all(now_s, stopped) + self._end_together(now_s)

    @guarded
    def save_now(self, now_s: float) -> list[Step]:
        return self._of_all(now_s, [member.save_now(now_s) for member in self.members])

    @guarded
    def tick(self, now_s: float) -> list[Step]:
        return self._of_all(now_s, [member.tick(now_s) for member in self.members]) + self._end_together(now_s)

    @guarded
    def adopt(self, metas: Sequence[ChunkMeta], now_s: float) -> list[Step]:
        return adopted(self, metas, now_s)

    def leftover_files(self) -> list[Step]:
        return self._of_all(0.0, [member.parts.leftover_files() for member in self.members])

    # --- a chunk counts for all policies or for none ---

    def _chunk(self, message: ChunkReady, sender: Sender, now_s: float) -> list[Step]:
        """Count a chunk, last for the first policy, which grants new credit once all policies have counted."""
        why = _refusal_of_late(self.members, message, sender)
        if why is not None:
            return [refused(message, why)]
        if (why := _too_large(self.members, message)) is not None:
            return [*self._refuse(message, why), refused(message, why)]
        shares = list(enumerate(_chunk_shares(self.members, message)))
        return [
            step
            for policy_index, (member, own) in reversed(shares)
            for step in self._of_policy(policy_index, member.receive(own, sender, now_s), now_s)
        ]

    def _refuse(self, message: ChunkReady, why: str) -> list[Step]:
        reason = f"chunks are refused: {why}"
        for commander in self._commanders:
            commander.end(End(reason, reason), skip_final_evaluation=True)
        id = self.identity.id
        gone = [PolicyEffect(id, name, DeleteChunks(id, (message.meta.file,))) for name in self._names]
        return [LogLine(id, f"chunk {message.meta.file} refused: {why}", "warning"), *gone]

    # --- they end together ---

    def _end_together(self, now_s: float) -> list[Step]:
        """End the remaining policies after the first end, and do work that became possible."""
        steps = self._of_all(now_s, [member.parts.dispatch.deal() for member in self.members])
        if not self._lead.serial:
            steps += self.begin_tasks(now_s)
        end, skips = self._ending()
        if end is None:
            return steps
        for commander in self._commanders:
            if commander.ending is None:
                commander.end(end, skip_final_evaluation=skips)
        for _ in range(PASSES):
            steps += self._of_all(now_s, [member.do_due(now_s) for member in self.members])
        steps += self._let_go(now_s)
        if self.over and not self._closed:
            self._closed = True
            steps.append(CloseRun(self.identity.id, frozenset(), results_of(self.status(now_s))))
        return steps

    def begin_tasks(self, now_s: float) -> list[Step]:
        return self._of_all(now_s, [member.begin_tasks(now_s) for member in self.members])

    def _ending(self) -> tuple[End | None, bool]:
        """Return the reason for the end, and True if the last checkpoints are not evaluated."""
        ended = [commander for commander in self._commanders if commander.ending is not None]
        if ended:
            return ended[0].ending, any(commander.skips_final_evaluation for commander in ended)
        return all_solved(self._commanders, self._stop_value), False

    def _let_go(self, now_s: float) -> list[Step]:
        """Close the leases of workers that the first policy has released, in all policies."""
        steps: list[Step] = []
        kept = set(self._lead.lease_numbers)
        for policy_index, member in list(enumerate(self.members))[1:]:
            for lease in list(member.parts.leases):
                if lease.role != "learner" and lease.number not in kept:
                    why = "the other policies of the run have let it go"
                    gone = member.worker_gone(lease.number, why, now_s, handed_in=True)
                    steps += self._of_policy(policy_index, gone, now_s)
        return steps

    # --- passing on ---

    def _members_of_lease(self, number: int) -> list[tuple[int, Experiment]]:
        """Return the members concerned by a lease: the member whose learner holds the lease, else all members."""
        return [
            (policy_index, member)
            for policy_index, member in enumerate(self.members)
            if member.parts.leases.known(number) is not None
        ]

    def _members_for(self, message: AnyMessage) -> list[tuple[int, Experiment]]:
        if isinstance(message, CollectorReport | EvaluationDone):
            return [(message.policy_index, self.members[message.policy_index])]
        return self._members_of_lease(getattr(message, "lease", 0))

    def _of_all(self, now_s: float, of_each: Sequence[Sequence[Step]]) -> list[Step]:
        return [
            step for policy_index, steps in enumerate(of_each) for step in self._of_policy(policy_index, steps, now_s)
        ]

    def _of_policy(self, policy_index: int, steps: Sequence[Step], now_s: float) -> list[Step]:
        """Turn the steps of a policy into steps of the run."""
        return [passed for step in steps if (passed := self._run_step(policy_index, step, now_s)) is not None]

    def _run_step(self, policy_index: int, step: Step, now_s: float) -> Step | None:
        id, member = self.identity.id, self.members[policy_index]
        match step:
            case Happened():
                return PolicyEffect(id, self._names[policy_index], Emit(id, member.event(step, now_s)))
            case LogLine() | Emit() | WriteProgress() | WriteTimers() | RecordCheckpoint() | RecordReward():
                return PolicyEffect(id, self._names[policy_index], step)
            case DeleteChunks() | RewindCurves() | CloseRun():
                return PolicyEffect(id, self._names[policy_index], step)
            case SendToLease(message=Assign() as assign) if not assign.policy:
                return SendToLease(step.lease, self._for_all(assign)) if policy_index == 0 else None
            case SendToLease(message=Drain()) | Release():
                return step if policy_index == 0 or not self._shares_lease(policy_index, step.lease) else None
            case Reply():
                return step if policy_index == 0 else None
            case _:
                return step

    def _shares_lease(self, policy_index: int, number: int) -> bool:
        lease = self.members[policy_index].parts.leases.known(number)
        return lease is not None and lease.role != "learner"

    def _for_all(self, assign: Assign) -> Assign:
        """A lease for all policies."""
        _, *others = [member.parts.flow for member in self.members]
        files = [member.parts.workers.policy_file for member in self.members]
        return replace(
            assign,
            policies=dict(zip(self._names, files, strict=True)),
            others=[flow.acting() for flow in others],
        )

    def _counters(self, now_s: float) -> Counters:
        return joined_counters([member.parts.status.counters(now_s) for member in self.members])


Run = Experiment | Team
"""A run that is not over."""


def _lacks_learner(member: Experiment) -> bool:
    return member.ending is None and not member.parts.leases.count("learner")


def _joined(wanted: Collection[Mapping[Role, int]]) -> dict[Role, int]:
    """Return the sum of learners, and the maximum for every other role."""
    return {role: (sum if role == "learner" else max)(one.get(role, 0) for one in wanted) for role in ROLES}


def _chunk_shares(members: Sequence[Experiment], message: ChunkReady) -> list[tuple[Experiment, ChunkReady]]:
    """Split a chunk by policy; the first part lists the others for credit accounting."""
    others = [ChunkReady(message.lease, meta) for meta in message.others]
    return list(zip(members, [message, *others], strict=True))


def _chunk_refusal(members: Sequence[Experiment], message: ChunkReady, sender: Sender) -> str | None:
    """Reason why any part of a chunk cannot be true; None if all parts can."""
    metas = [message.meta, *message.others]
    if len(metas) != len(members):
        return f"its chunk {message.meta.file} is of {len(metas)} policies, and there are {len(members)}"
    whole = (message.meta.chunk, message.meta.env_steps)
    if any((meta.chunk, meta.env_steps) != whole for meta in metas):
        return f"its chunk {message.meta.file} is not the same for all policies"
    return _first(member.refusal(own, sender) for member, own in _chunk_shares(members, message))


def _refusal_of_late(members: Sequence[Experiment], message: ChunkReady, sender: Sender) -> str | None:
    """Reason to refuse a chunk under a closed lease; None if the lease is open or the chunk counts."""
    lead = members[0]
    if message.lease in lead.parts.leases.open_leases:
        return None
    if (why := _chunk_refusal(members, message, sender)) is not None:
        return why
    if not lead.parts.leases.was_held_by(message.lease, sender):
        return None  # each refuses it
    return _first(member.messages.refusal_of_chunk(own, sender) for member, own in _chunk_shares(members, message))


def _too_large(members: Sequence[Experiment], message: ChunkReady) -> str | None:
    """Reason why a policy's buffer can never hold the part; this config is hopeless."""
    return _first(member.replay.misfit(own.meta) for member, own in _chunk_shares(members, message))


def _first(each: Iterable[T | None]) -> T | None:
    return next((found for found in each if found is not None), None)
