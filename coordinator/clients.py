"""What clients ask for: submit an experiment, stop it, show how all goes, read logs, shut down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remuda.coordinator.closing import Closing
from remuda.coordinator.effects import Answer, Asked, KnowRun, PrepareRun, ReadLog, Say, Step
from remuda.coordinator.events import RunPrepared
from remuda.coordinator.experiment import Experiment
from remuda.coordinator.experiments import Experiments
from remuda.coordinator.herd import Herd
from remuda.coordinator.identity import Identity
from remuda.coordinator.past_run import PastRun
from remuda.coordinator.recollection import Recollection
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    ClientMessage,
    CoordinatorStatus,
    Done,
    LogRequest,
    Rejected,
    Shutdown,
    Status,
    StatusRequest,
    StopExperiment,
    Submit,
    Submitted,
)


@dataclass(frozen=True)
class About:
    """The coordinator itself, as clients are shown it."""

    id: str
    address: str
    pid: int
    started_s: float

    def status(self, now_s: float) -> CoordinatorStatus:
        """As `remuda status` shows it."""
        return CoordinatorStatus(self.id, self.address, self.pid, now_s - self.started_s, PROTOCOL_VERSION)


class Clients:
    """Answers clients, and carries out what they ask for."""

    def __init__(
        self,
        about: About,
        *,
        experiments: Experiments,
        herd: Herd,
        closing: Closing,
        recollection: Recollection,
        new_id: Callable[[], str],
    ) -> None:
        self._about = about
        self._experiments = experiments
        self._herd = herd
        self._closing = closing
        self._recollection = recollection
        self._new_id = new_id

    def handle(self, message: ClientMessage, asked: Asked, now_s: float) -> list[Step]:
        """What a client wants. The answers to Submit and LogRequest wait for the disk."""
        match message:
            case Submit():
                return self._closing.refusal() or self._submit(message, asked)
            case StatusRequest():
                return [Answer(self.status(message.experiment, now_s))]
            case StopExperiment():
                return self._stop(message, now_s)
            case LogRequest():
                return self._read_log(message, asked)
            case Shutdown():
                return [Answer(Done()), *self._closing.begin(message.reason, now_s)]

    def status(self, query: str | None, now_s: float) -> Status | Rejected:
        """The whole picture, or that of one experiment."""
        shown = [*self._experiments]
        if query is not None:
            found = self._experiments.find(query)
            if isinstance(found, Rejected):
                return found
            shown = [found]
        return Status(self._about.status(now_s), self._herd.status(now_s), [each.status(now_s) for each in shown])

    def prepared(self, event: RunPrepared, now_s: float) -> list[Step]:
        """The run folder of a submission is ready: its experiment is queued."""
        id, submit = event.request.experiment, event.request.submit
        place = self._experiments.next_place
        identity = Identity(id, submit.name, event.run_dir, event.policy_file, submit.priority, place)
        experiment = Experiment(identity, event.config, now_s, event.resumed)
        if event.recovered is not None:
            experiment.resume(event.recovered.memory.experiment, event.recovered.chunks, now_s)
            if event.recovered.priorities is not None:
                experiment.experience.remember_priorities(event.recovered.priorities)
            experiment.count_late(event.uncounted)
        self._experiments.add(experiment)
        self._recollection.touch(id)
        text = f"experiment {id} ({submit.name}) submitted; run folder {event.run_dir}"
        return [KnowRun(id), Say(id, text), Answer(Submitted(id, event.run_dir))]

    def _submit(self, message: Submit, asked: Asked) -> list[Step]:
        known = self._experiments.get(message.experiment or "")
        if known is not None:
            return [Answer(Submitted(known.identity.id, known.identity.run_dir))]
        return [PrepareRun(asked, message.experiment or self._new_id(), message)]

    def _stop(self, message: StopExperiment, now_s: float) -> list[Step]:
        found = self._experiments.find(message.experiment)
        if isinstance(found, Rejected):
            return [Answer(found)]
        if isinstance(found, PastRun):
            return [Answer(Done())]
        self._recollection.touch(found.identity.id)
        return [Answer(Done()), *found.stop(now=message.now, explanation="a client asked to stop", now_s=now_s)]

    def _read_log(self, message: LogRequest, asked: Asked) -> list[Step]:
        found = self._experiments.find(message.experiment)
        if isinstance(found, Rejected):
            return [Answer(found)]
        return [ReadLog(asked, found.identity.run_dir, message, found.over)]
