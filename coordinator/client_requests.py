"""Requests of clients: submit or stop an experiment, show the status, read logs, shut down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from remuda.coordinator.bill import Charge
from remuda.coordinator.catalog import Catalog
from remuda.coordinator.effects import (
    Broken,
    KeepQuota,
    MarkRecoverable,
    PrepareRun,
    ReadBill,
    ReadLog,
    Reply,
    Requester,
    Step,
)
from remuda.coordinator.events import RunPrepared, RunRefused
from remuda.coordinator.journaling import Journaling
from remuda.coordinator.membership import Membership
from remuda.coordinator.shares import Shares
from remuda.coordinator.shutdown import CoordinatorShutdown
from remuda.training.effects import LogLine
from remuda.training.run_snapshot import FinishedRun
from remuda.wire.door import Refusals
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    BillRequest,
    ClientMessage,
    CoordinatorLoad,
    CoordinatorStatus,
    Done,
    LogRequest,
    Prioritize,
    QuotaRequest,
    Quotas,
    RefusalCounts,
    Rejected,
    SetQuota,
    Shutdown,
    Status,
    StatusRequest,
    StopExperiment,
    Submit,
    Submitted,
)

PREPARING_AT_ONCE = 32
"""Submissions whose run folders are prepared at the same time. Every submission needs a thread meanwhile."""


@dataclass(frozen=True)
class About:
    """Data of the coordinator itself for the status."""

    id: str
    address: str
    pid: int
    started_s: float

    def status(self, load: CoordinatorLoad, refusals: RefusalCounts, now_s: float) -> CoordinatorStatus:
        """Return the status shown by `remuda status`."""
        uptime_s = now_s - self.started_s
        return CoordinatorStatus(self.id, self.address, self.pid, uptime_s, PROTOCOL_VERSION, load, refusals)


class ClientRequests:
    """Answers clients, and carries out their requests."""

    def __init__(
        self,
        about: About,
        *,
        catalog: Catalog,
        membership: Membership,
        shutdown: CoordinatorShutdown,
        journaling: Journaling,
        refusals: Refusals,
        new_id: Callable[[], str],
        read_shares: Callable[[], Shares],
    ) -> None:
        self._about = about
        self._catalog = catalog
        self._membership = membership
        self._shutdown = shutdown
        self._journaling = journaling
        self._refusals = refusals
        self._new_id = new_id
        self._read_shares = read_shares
        self.load = CoordinatorLoad()
        """Load of the coordinator's process, as last measured."""

    def handle(self, message: ClientMessage, requester: Requester, now_s: float) -> list[Step]:
        """Handle a client's request. Some answers come when the disk has answered."""
        match message:
            case Submit():
                return self._shutdown.refusal() or self._submit(message, requester)
            case StatusRequest():
                return [Reply(self.status(message.experiment, now_s))]
            case StopExperiment():
                return self._stop(message, now_s)
            case Prioritize():
                return self._prioritize(message)
            case BillRequest():
                return [ReadBill(requester, message, tuple(self._charges(now_s)))]
            case SetQuota():
                return [KeepQuota(requester, message.quota)]
            case QuotaRequest():
                return [Reply(Quotas(self._read_shares().status()))]
            case LogRequest():
                return self._read_log(message, requester)
            case Shutdown():
                return [Reply(Done()), *self._shutdown.begin(message.reason, now_s)]

    def _charges(self, now_s: float) -> Iterator[Charge]:
        for each in self._catalog:
            if isinstance(each, FinishedRun):
                yield Charge(each.identity, each.hours)
            else:
                each.meter.advance(now_s)
                yield Charge(each.identity, each.meter.hours)

    def status(self, query: str | None, now_s: float) -> Status | Rejected:
        """Return the status of everything, or of an experiment."""
        shown = [*self._catalog]
        if query is not None:
            found = self._catalog.find(query)
            if isinstance(found, Rejected):
                return found
            shown = [found]
        about = self._about.status(self.load, self._refusals.counts, now_s)
        return Status(about, self._membership.status(now_s), [each.status(now_s) for each in shown])

    def prepared(self, event: RunPrepared, now_s: float) -> list[Step]:
        """Queue a submitted experiment whose run folder is ready, or stop the experiment if the end has begun."""
        experiment, submit = event.experiment, event.request.submit
        id, run_dir = experiment.identity.id, experiment.identity.run_dir
        self._catalog.preparing.discard(id)
        self._catalog.add(experiment)
        self._journaling.touched.add(id)
        text = f"experiment {id} ({submit.name}) submitted; run folder {run_dir}"
        return [
            MarkRecoverable(id),
            *experiment.continued(),
            LogLine(id, text),
            Reply(Submitted(id, run_dir), after=id),
            *self._shutdown.added(experiment, now_s),
        ]

    def not_prepared(self, event: RunRefused) -> list[Step]:
        """The run folder of a submission cannot be made."""
        self._catalog.preparing.discard(event.experiment)
        return [Reply(event.rejection)]

    def _submit(self, message: Submit, requester: Requester) -> list[Step]:
        known = self._catalog.known.get(message.experiment or "")
        if known is not None:
            return [Reply(Submitted(known.identity.id, known.identity.run_dir), after=known.identity.id)]
        if message.experiment in self._catalog.preparing:
            return [Reply(Rejected("busy", "this submission is being prepared already: ask again in a moment"))]
        if len(self._catalog.preparing) >= PREPARING_AT_ONCE:
            text = f"{PREPARING_AT_ONCE} submissions are being prepared: submit again when some of them are done"
            return [Reply(Rejected("busy", text))]
        id = message.experiment or self._new_id()
        self._catalog.preparing.add(id)
        return [PrepareRun(requester, id, message, self._catalog.next_submission())]

    def _stop(self, message: StopExperiment, now_s: float) -> list[Step]:
        found = self._catalog.find(message.experiment)
        if isinstance(found, Rejected):
            return [Reply(found)]
        if isinstance(found, FinishedRun):
            return [Reply(Done())]
        id, held_up = found.identity.id, found.held_up
        if held_up is not None and message.now:
            return [
                Reply(Done()),
                Broken(id, f"a client asked to stop at once while it was held up: {held_up.why}", ""),
            ]
        self._journaling.touched.add(id)
        answer = Reply(Done(), after="" if held_up else id)
        return [answer, *found.stop(now=message.now, explanation="a client asked to stop", now_s=now_s)]

    def _prioritize(self, message: Prioritize) -> list[Step]:
        found = self._catalog.find(message.experiment)
        if isinstance(found, Rejected):
            return [Reply(found)]
        if isinstance(found, FinishedRun):
            return [Reply(Rejected("invalid", f"the experiment {found.identity.name} is over ({found.state})"))]
        identity = found.identity
        text = f"a client changed its priority from {identity.priority} to {message.priority}"
        identity.priority = message.priority
        self._journaling.touched.add(identity.id)
        return [Reply(Done(), after="" if found.held_up else identity.id), LogLine(identity.id, text)]

    def _read_log(self, message: LogRequest, requester: Requester) -> list[Step]:
        found = self._catalog.find(message.experiment)
        if isinstance(found, Rejected):
            return [Reply(found)]
        return [ReadLog(requester, found.identity.run_dir, message, found.over)]
