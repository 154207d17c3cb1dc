"""The coordinator as a pure state machine: events and a clock reading in, effects out.

It opens no socket and no file and reads no clock, so a test can run a thousand workers and lose any message in
milliseconds, and the same code runs in production behind service.py.

All input enters here and is passed to the part concerned: the herd, an experiment, the clients' requests, or the
shutdown. These parts return steps; here the steps become envelopes to workers and clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args
from uuid import uuid4

from remuda.coordinator.assignments import Assignments
from remuda.coordinator.catalog import Catalog
from remuda.coordinator.client_requests import About, ClientRequests
from remuda.coordinator.connections import Connections
from remuda.coordinator.effects import (
    Broken,
    DeleteChunks,
    Effect,
    ForgetPeer,
    Release,
    Reply,
    Requester,
    Send,
    SendToLease,
    SendToPeer,
    Step,
    refused,
)
from remuda.coordinator.events import (
    Answered,
    DiskEvent,
    Event,
    HandoverRequested,
    HeldUp,
    QuotaKept,
    Received,
    RecoveredRun,
    RunBroken,
    RunPrepared,
    RunRefused,
    SelfVitals,
    ShutdownRequested,
    Tick,
)
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.experiment.messages import UNDER_A_LEASE
from remuda.coordinator.journaling import MAY_BE_SOFT, Journaling
from remuda.coordinator.leases import Sender, sender_at
from remuda.coordinator.membership import FilesOffer, Membership
from remuda.coordinator.registry import Registry, Worker
from remuda.coordinator.rights import MAY_SAY, forbidden
from remuda.coordinator.settings import Limits
from remuda.coordinator.shares import Shares
from remuda.coordinator.shutdown import CoordinatorShutdown, Handover
from remuda.training.effects import Happened, LogLine
from remuda.training.journal_entry import JournalEntry
from remuda.training.run_snapshot import FinishedRun
from remuda.training.vitals import COORDINATOR
from remuda.wire.codec import Envelope
from remuda.wire.door import Refusals
from remuda.wire.messages import (
    OVER,
    Ack,
    AnyMessage,
    Assign,
    Beat,
    BillRequest,
    Bye,
    ChunkReady,
    ClientMessage,
    Done,
    LogRequest,
    Register,
    Rejected,
    SetQuota,
    Submit,
    WorkerFailed,
    shortened,
)

_FROM_ANYBODY = (Register, *get_args(ClientMessage), ChunkReady, WorkerFailed, Bye)
"""Messages that count even from a lost sender: data or a failure counts once."""
UNKNOWN = Rejected("unknown", "not registered here (any more): register first")
"""Answer to a worker that has to register first."""
_ANSWERED_LATER = (Submit, LogRequest, BillRequest, SetQuota)
"""Messages answered after disk access. Every further message is answered in the same turn, or needs only an Ack."""
_NOT_FOR_THE_DISK = (Ack, Beat, Register, Bye)
"""Worker messages handled and answered at once, even while the disk of the run accepts no writes: the answers contain
nothing to be journaled. A worker names a lease only after the journal had it."""


class Coordinator:
    """The herd, the experiments and all conversations, without any input or output."""

    def __init__(
        self,
        *,
        id: str,
        address: str,
        pid: int,
        now_s: float,
        limits: Limits | None = None,
        leases: int = 0,
        boot: str = "",
        refusals: Refusals | None = None,
        files: FilesOffer | None = None,
        idle_end_s: float | None = None,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        """`leases` is the highest lease number possibly used before; `boot` is different for every start of every
        machine; `refusals` counts refusals; `files` is the way of workers to the files of runs. The coordinator ends
        after `idle_end_s` seconds without a run."""
        limits = limits or Limits()
        self._refusals = refusals or Refusals()
        self.registry = Registry(limits)
        """The herd."""
        self.connections = Connections(self.registry.has)
        self.experiments = Catalog()
        """All known experiments, oldest first."""
        self.journaling = Journaling(self.experiments, boot)
        self.shares = Shares()
        """Use and quotas of users and projects."""
        self._assignments = Assignments(
            self.registry, self.experiments, self.journaling, self.shares, newest_lease=leases
        )
        self._files = files or FilesOffer()
        self.membership = Membership(id, self.registry, self._assignments, self._files)
        self._shutdown = CoordinatorShutdown(self.experiments, self.registry, self.journaling, idle_end_s=idle_end_s)
        self._handover = Handover(self.experiments, self.journaling)
        self.client_requests = ClientRequests(
            About(id, address, pid, now_s),
            catalog=self.experiments,
            membership=self.membership,
            shutdown=self._shutdown,
            journaling=self.journaling,
            refusals=self._refusals,
            new_id=new_id,
            read_shares=self._assignments.read_shares,
        )

    # --- the one entrance ---

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Handle an event; return the effects to carry out."""
        match event:
            case Received():
                return self._received(event, now_s)
            case Tick():
                return self._tick(event.hour, now_s)
            case ShutdownRequested():
                return self._perform(self._shutdown.begin(event.reason, now_s), now_s)
            case HandoverRequested():
                return self._perform(self._handover.begin(event.reason, now_s), now_s)
            case SelfVitals():
                self.client_requests.load = event.load
                for policy in (policy for experiment in self.experiments.active for policy in experiment.policies):
                    policy.vitals.add(COORDINATOR, COORDINATOR, event.vitals)
                return []
            case _:
                return self._handle_disk_event(event, now_s)

    def _handle_disk_event(self, event: DiskEvent, now_s: float) -> list[Effect]:
        match event:
            case RunPrepared():
                steps = self.client_requests.prepared(event, now_s) + self._assignments.schedule(now_s)
                return self._perform(steps, now_s, event.request.requester)
            case RunRefused():
                return self._perform(self.client_requests.not_prepared(event), now_s, event.requester)
            case Answered():
                return self._perform([Reply(event.answer)], now_s, event.requester)
            case QuotaKept():
                self.shares.set_quota(event.quota)
                return self._perform([Reply(Done())], now_s, event.requester)
            case HeldUp():
                return self._perform(self.experiments.hold_up(event.experiment, event.hold, now_s), now_s)
            case RunBroken():
                return self._perform([Broken(event.experiment, event.reason, event.traceback)], now_s)

    def journal_entries(self, now_s: float) -> list[JournalEntry]:
        """Return the journal entries to write before any effect since the last call is carried out."""
        entries = self.journaling.take(self._assignments.newest_lease, now_s)
        for each in entries:
            if each.snapshot.experiment.state in OVER:
                self._assignments.retire(each.experiment, now_s)
        return entries

    @property
    def unjournaled(self) -> frozenset[str]:
        """Experiments with an error raised in `journal_entries`: all effects of this turn are dropped, and the
        experiments fail at the next tick."""
        return frozenset(broken.experiment for broken in self.journaling.broken)

    def recover(self, runs: Iterable[RecoveredRun | FinishedRun], now_s: float, *, late: bool = False) -> list[Effect]:
        """Recover the runs of an earlier coordinator, oldest first.

        Call this before the first message, or with `late` after messages were handled; workers of these runs were then
        sent away, and new workers replace the old.
        """
        steps: list[Step] = []
        for run in runs:
            if isinstance(run, FinishedRun):
                self.experiments.add_finished(run)
                continue
            self.experiments.add(run.experiment)
            self.experiments.set_hold(run.experiment, run.hold)
            steps += self._assignments.restore(run, now_s, late=late)
            if run.experiment.over:
                self._assignments.retire(run.experiment.identity.id, now_s)
            else:
                steps += run.experiment.continued()
            steps += self._shutdown.added(run.experiment, now_s)
        return self._perform(steps + self._assignments.end_left_over(now_s), now_s)

    @property
    def ending(self) -> bool:
        """True during shutdown."""
        return self._shutdown.reason is not None

    # --- messages ---

    def _received(self, event: Received, now_s: float) -> list[Effect]:
        if type(event.envelope.message) not in MAY_SAY[event.who.right]:
            return self._forbid(event)
        if self.experiments.held_up and self._must_wait(event):
            return []
        arrived = self.connections.receive(event.peer, event.envelope, now_s, event.who.name)
        if arrived is None:
            return self._taken(event)
        received, repeated = arrived
        message = received.message
        if message is None:
            return [*repeated]
        worker = self.registry.by_peer.get(event.peer)
        if worker is not None:
            worker.last_message_s = now_s
        elif not isinstance(message, _FROM_ANYBODY):
            # Not acknowledged: a worker that has outlived a coordinator says it again once it is registered.
            return [*self.connections.post(event.peer, UNKNOWN, now_s, once=True)]
        requester = Requester(event.peer, received.id, event.who.name)
        tells_of_run = not isinstance(message, _NOT_FOR_THE_DISK)
        after = self._assignments.experiment_ids.get(getattr(message, "lease", 0), "") if tells_of_run else ""
        if type(message) in UNDER_A_LEASE:  # first, as most are
            steps = self._under_a_lease(message, worker, requester.peer, now_s)
        else:
            steps = self._dispatch(message, worker, requester, now_s)
        effects = self._perform(steps, now_s, requester, after)
        if Reply not in map(type, steps) and not isinstance(message, _ANSWERED_LATER):
            effects += self.connections.acknowledge(event.peer, received.id, after=after)
        if self._shutdown.reason is not None:  # somebody waits for the end: it does not come with the next tick only
            effects += self._perform(self._shutdown.tick(now_s), now_s)
        return effects

    def _forbid(self, event: Received) -> list[Effect]:
        """Refuse a message; keep no state for its sender."""
        if self.connections.is_taken(event.peer, event.who.name):
            return self._taken(event)
        rejected = forbidden(event.who, event.envelope.message)
        self._refusals.note("forbidden", rejected.reason)
        return [Send(event.peer, Envelope(0, event.envelope.id, 1, rejected))]

    def _taken(self, event: Received) -> list[Effect]:
        """Ignore a message under the identity of another peer: the owner of this identity might get an answer."""
        self._refusals.note("taken_identity", f"key {event.who.name} speaks in the place of another peer")
        return []

    def _must_wait(self, event: Received) -> bool:
        """True for work of a run whose disk accepts no writes: the message is ignored now, and sent again later. The
        amount of data waiting for the disk stays bounded, and every answer is journaled."""
        if isinstance(event.envelope.message, _NOT_FOR_THE_DISK):
            return False
        worker = self.registry.by_peer.get(event.peer)
        experiment = None if worker is None else self._assignments.experiment_of(worker)
        return experiment is not None and experiment.held_up is not None and not experiment.held_up.journals

    def _dispatch(self, message: AnyMessage, worker: Worker | None, requester: Requester, now_s: float) -> list[Step]:
        match message:
            case Beat() if worker is not None:
                return self.membership.beat(worker, message, now_s)
            case Bye():
                return [] if worker is None else self.membership.goodbye(worker, message.reason, now_s)
            case Register():
                return self._shutdown.refusal(message) or self.membership.register(message, requester.peer, now_s)
            case _ if isinstance(message, ClientMessage):
                return self.client_requests.handle(message, requester, now_s)
            case _:
                return []  # nothing that anybody says to a coordinator

    def _under_a_lease(self, message: AnyMessage, worker: Worker | None, peer: bytes, now_s: float) -> list[Step]:
        """Handle a worker's message about its work, if the message can be true and concerns the worker's lease."""
        match experiment := self._assignments.find(getattr(message, "lease", 0)):
            case Experiment():
                sender = sender_at(peer) if worker is None else Sender(worker.uuid, worker.incarnation)
                why = experiment.refusal(message, sender)
                if why is not None:
                    return self._reject(message, worker, why, now_s)
                steps = experiment.receive(message, sender, now_s)
                if type(message) in MAY_BE_SOFT:
                    self.journaling.handled(experiment, message, steps)
                else:
                    self.journaling.touched.add(experiment.identity.id)
                return steps
            case FinishedRun() if isinstance(message, ChunkReady):
                return [refused(message, f"the experiment is over ({experiment.state})")]
            case FinishedRun() if isinstance(message, WorkerFailed):  # the stacks of a dismissed worker
                text = f"lease {message.lease}: {message.error}\n{message.traceback}"
                return [LogLine(experiment.identity.id, text, "error")]
            case _:
                return [refused(message, "no such lease")] if isinstance(message, ChunkReady) else []

    def _reject(self, message: AnyMessage, worker: Worker | None, why: str, now_s: float) -> list[Step]:
        steps: list[Step] = [refused(message, why)] if isinstance(message, ChunkReady) else []
        if worker is None:
            return steps
        steps += self.membership.reject(worker, shortened(why), now_s)
        return steps + self._assignments.schedule(now_s)

    def drop(self, peer: bytes, now_s: float) -> list[Effect]:
        """End a conversation because of a message that cannot be handled."""
        worker = self.registry.by_peer.get(peer)
        why = "a message cannot be handled; see the coordinator's log"
        if worker is None:
            effects: list[Effect] = [*self.connections.post(peer, Rejected("malformed", why), now_s, once=True)]
        else:
            effects = self._perform(self._assignments.dismiss(worker, why, now_s), now_s)
        self.connections.forget(peer)
        return effects

    # --- time ---

    def _tick(self, hour: int, now_s: float) -> list[Effect]:
        active = self.experiments.active
        self._assignments.begin_hour(active, hour, now_s)
        broken, self.journaling.broken = self.journaling.broken, []
        steps: list[Step] = [*broken, *self.membership.tick(now_s)]
        for experiment in active:  # one that ended in this turn does nothing
            ticked = experiment.tick(now_s)
            self.journaling.ticked(experiment, ticked)
            steps += ticked
        self.journaling.tick(now_s)
        effects = self._perform(steps + self._assignments.tick(now_s), now_s)
        effects += self._perform(self._shutdown.tick(now_s) + self._handover.tick(), now_s)
        for peer in self.connections.take_unresponsive():  # unconfirmed messages are kept
            if (worker := self.registry.by_peer.get(peer)) is not None:
                steps = self.membership.reject(worker, "it does not confirm its messages", now_s)
                effects += self._perform(steps, now_s)
                self.connections.forget(peer)
        self.connections.expire(now_s, keep=lambda peer: self.registry.by_peer.get(peer) is not None)
        return [*effects, *self.connections.due(now_s)]

    # --- steps to effects ---

    def _perform(
        self, steps: Iterable[Step], now_s: float, requester: Requester | None = None, after: str = ""
    ) -> list[Effect]:
        """`after` is the experiment of the current message."""
        effects: list[Effect] = []
        for step in steps:
            match step:
                case DeleteChunks():  # these two come with most chunks
                    effects.append(step)
                case Reply():
                    assert requester is not None, "an answer outside a conversation"
                    known_to = step.after or after
                    effects += self.connections.answer(
                        requester.peer, step.message, now_s, to=requester.message_id, after=known_to
                    )
                case SendToLease():
                    effects += self._send_to_lease(step, now_s)
                case SendToPeer():
                    effects += self.connections.post(step.peer, step.message, now_s)
                case ForgetPeer():
                    self.connections.forget(step.peer)
                case Release():
                    effects += self._perform(self.membership.release(step, now_s), now_s)
                case Broken() | Happened():
                    effects += self._perform_of_run(step, now_s)
                case _:
                    effects.append(step)
        return effects

    def _send_to_lease(self, step: SendToLease, now_s: float) -> list[Send]:
        worker = self.registry.holders.get(step.lease)
        if worker is None:
            return []
        message = self._files.granted(step.message, worker) if isinstance(step.message, Assign) else step.message
        known_to = self._assignments.experiment_ids.get(step.lease, "")
        return self.connections.post(worker.peer, message, now_s, after=known_to)

    def _perform_of_run(self, step: Broken | Happened, now_s: float) -> list[Effect]:
        if isinstance(step, Broken):
            return self._perform(self._assignments.break_off(step, now_s), now_s)
        experiment = self.experiments.known.get(step.experiment)
        return self._perform(experiment.events(step, now_s), now_s) if isinstance(experiment, Experiment) else []
