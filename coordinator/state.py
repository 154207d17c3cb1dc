"""The coordinator as a pure state machine: events and a clock reading in, effects out.

It opens no socket, file or clock, so a test can run a thousand workers and lose any message in milliseconds, and the
same code runs in production behind service.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import get_args
from uuid import uuid4

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import (
    Answer,
    Effect,
    Emit,
    Exit,
    PrepareRun,
    ReadLog,
    Release,
    Remember,
    Say,
    Step,
    Tell,
)
from remuda.coordinator.events import (
    Event,
    LogRead,
    Received,
    Recovered,
    RunPrepared,
    RunRefused,
    ShutdownRequested,
    Tick,
    Weighed,
)
from remuda.coordinator.experiment import Experiment
from remuda.coordinator.identity import Identity
from remuda.coordinator.lookup import find
from remuda.coordinator.lost_run import LostRun
from remuda.coordinator.peers import Peers
from remuda.coordinator.recollection import Recollection, identity_of
from remuda.coordinator.registry import Limits, Registry, Worker
from remuda.coordinator.scheduler import ROLES, Grant, Plan, plan
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    AnyMessage,
    Beat,
    BeatHeard,
    Bye,
    ChunkAccepted,
    ChunkReady,
    ClientMessage,
    CoordinatorStatus,
    Done,
    Leave,
    LogRequest,
    Register,
    Registered,
    Rejected,
    Role,
    Shutdown,
    Status,
    StatusRequest,
    StopExperiment,
    Submit,
    Submitted,
    WorkerFailed,
    WorkerStatus,
)

FAREWELL_S = 5.0
"""How long a coordinator that shuts down waits for its workers to say goodbye."""

_FROM_ANYBODY = (Register, *get_args(ClientMessage), ChunkReady, WorkerFailed, Bye, Ack)
"""Messages that mean something whoever says them."""

HERD_INTERVAL_S = 0.25
"""Between two looks through the whole herd for those that are lost or stuck."""


@dataclass(frozen=True)
class _Pending:
    """A submission whose run folder is being made."""

    peer: bytes
    message_id: int
    submit: Submit


class Coordinator:
    """Registry, scheduler, experiments and the conversations with everybody, without any input or output."""

    def __init__(
        self,
        *,
        id: str,
        address: str,
        pid: int,
        now_s: float,
        limits: Limits | None = None,
        leases: int = 0,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        """`leases` is the highest lease number that may have been given out before."""
        self.id = id
        self._address = address
        self._pid = pid
        self._started_s = now_s
        self._limits = limits or Limits()
        self._new_id = new_id
        self._registry = Registry(self._limits)
        self._peers = Peers()
        self._experiments: dict[str, Experiment] = {}
        self._lost: dict[str, LostRun] = {}
        self._lease_holders: dict[int, tuple[str, str]] = {}
        """Lease number to (experiment, worker UUID), while the lease is open."""
        self._lease_experiments: dict[int, str] = {}
        """Lease number to experiment, kept after the lease is over: late chunks still find their ledger."""
        self._leases = leases
        self._recollection = Recollection()
        self._pending: dict[str, _Pending] = {}
        self._herd_due_s = 0.0
        self._closing: str | None = None
        self._farewell_s: float | None = None

    # --- the one entrance ---

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Take an event in and say what is to be done."""
        match event:
            case Received():
                return self._received(event, now_s)
            case RunPrepared():
                return self._run_prepared(event, now_s)
            case RunRefused():
                return self._run_refused(event, now_s)
            case LogRead():
                return [*self._peers.answer(event.peer, event.answer, now_s, to=event.message_id)]
            case ShutdownRequested():
                return self._shut_down(event.reason, now_s)
            case Tick():
                return self._tick(now_s)
            case Weighed():
                for experiment in self._experiments.values():
                    experiment.weighed(event.vitals)
                return []

    def remember(self, now_s: float) -> list[Remember]:
        """What has to be in the journals before anything that `handle` has asked for since the last call is done."""
        return self._recollection.take(self._experiments, self._holders(), self._leases, now_s)

    @property
    def has_news(self) -> bool:
        """Whether `remember` has anything to say."""
        return self._recollection.has_news

    def recover(self, runs: Iterable[Recovered | LostRun], now_s: float) -> None:
        """Take up what a coordinator before this one left behind; for one that has heard nothing yet."""
        for run in runs:
            if isinstance(run, LostRun):
                self._lost[run.identity.id] = run
                continue
            identity = identity_of(run.memory.identity)
            config = ExperimentConfig.model_validate_json(run.memory.identity.config_json)
            experiment = Experiment(identity, config, now_s)
            experiment.remember(run.memory.experiment, run.chunks, now_s)
            if run.priorities is not None:
                experiment.experience.remember_priorities(run.priorities)
            self._experiments[identity.id] = experiment
            self._leases = max(self._leases, run.memory.leases)
            self._lease_experiments |= dict.fromkeys(experiment.past_leases, identity.id)
            for holder in run.memory.holders:
                self._registry.expect(holder, now_s)
                self._lease_holders[holder.lease] = (identity.id, holder.worker)

    @property
    def experiments(self) -> Iterable[Experiment]:
        """Every experiment it has known, oldest first."""
        return self._experiments.values()

    @property
    def registry(self) -> Registry:
        """The herd."""
        return self._registry

    def status(self, query: str | None, now_s: float) -> Status | Rejected:
        """The whole picture, or that of one experiment."""
        shown: list[Experiment | LostRun] = [*self._lost.values(), *self._experiments.values()]
        if query is not None:
            found = self._find_experiment(query)
            if isinstance(found, Rejected):
                return found
            shown = [found]
        return Status(
            coordinator=CoordinatorStatus(self.id, self._address, self._pid, now_s - self._started_s, PROTOCOL_VERSION),
            workers=[self._worker_status(worker, now_s) for worker in self._registry],
            experiments=[each.status(now_s) for each in shown],
        )

    # --- messages ---

    def _received(self, event: Received, now_s: float) -> list[Effect]:
        received, answers = self._peers.receive(event.peer, event.envelope, now_s)
        effects: list[Effect] = [*answers]
        if received.message is None:
            return effects
        if self._is_strangers(event.peer, received.message):
            unknown = Rejected("unknown", "not registered here (any more): register first")
            return effects + self._peers.say_once(event.peer, unknown, now_s)
        steps = self._dispatch(event.peer, received.message, received.id, now_s)
        effects += self._perform(steps, now_s, peer=event.peer, message_id=received.id)
        if not self._answers_later(event.peer, received.id, effects):
            effects += self._peers.acknowledge(event.peer, received.id)
        return effects

    def _is_strangers(self, peer: bytes, message: AnyMessage) -> bool:
        """Whether this means nothing to anybody here. It is not acknowledged: a worker that has outlived a coordinator
        says it again once it is registered. What a lost life collected or failed at counts all the same, once."""
        if isinstance(message, _FROM_ANYBODY):
            return False
        return self._worker_of(peer) is None

    def _answers_later(self, peer: bytes, message_id: int, effects: list[Effect]) -> bool:
        """Whether the answer to this message waits for the disk."""
        for pending in self._pending.values():
            if (pending.peer, pending.message_id) == (peer, message_id):
                return True
        return any(isinstance(effect, ReadLog) for effect in effects)

    def _dispatch(self, peer: bytes, message: AnyMessage, message_id: int, now_s: float) -> list[Step]:
        match message:
            case Register():
                return self._register(peer, message, now_s)
            case Submit() | StatusRequest() | StopExperiment() | LogRequest() | Shutdown():
                return self._client_message(peer, message, message_id, now_s)
            case Ack():
                return []
            case _:
                return self._worker_message(peer, message, now_s)

    def _register(self, peer: bytes, message: Register, now_s: float) -> list[Step]:
        if message.protocol != PROTOCOL_VERSION:
            return [
                Answer(
                    Rejected(
                        "protocol",
                        f"this coordinator speaks protocol {PROTOCOL_VERSION}, the worker {message.worker} "
                        f"(Remuda {message.version}) speaks {message.protocol}; install the same version on both",
                    )
                )
            ]
        if not peer.startswith(f"{message.worker}:{message.incarnation}:".encode()):
            return [Answer(Rejected("malformed", "the socket's identity is not that of the registered worker"))]
        if self._closing is not None:
            return [Answer(Rejected("closing", f"the coordinator is shutting down: {self._closing}"))]
        admission = self._registry.admit(message, peer, now_s)
        if admission.worker is None:
            return [Answer(Rejected("superseded", admission.refusal or "refused"))]
        worker = admission.worker
        if admission.back:
            if admission.former_peer != peer:
                self._peers.forget(admission.former_peer)
            return self._welcome_back(worker, message, now_s)
        steps: list[Step] = [self._registered(message.lease)]
        if admission.superseded is not None:
            former = admission.superseded
            steps += self._end_lease_of(former, "it started anew", now_s)
            steps += self._dismiss(former, f"incarnation {message.incarnation} has taken over", now_s)
        steps.append(
            Say(
                None,
                f"{message.role} {message.worker} incarnation {message.incarnation} joins the herd "
                f"(pid {message.pid} on {message.host})",
            )
        )
        return steps + self._schedule(now_s)

    def _welcome_back(self, worker: Worker, message: Register, now_s: float) -> list[Step]:
        """It has lost touch with this coordinator, or with the one before. It goes on with its lease if both sides say
        it has it; what was on its way to it is said again."""
        if worker.lease and worker.lease == message.lease:
            back = self._experiments[self._lease_experiments[worker.lease]].back(worker.lease, now_s)
            return [self._registered(message.lease, goes_on=True), *back]
        steps: list[Step] = [self._registered(message.lease)]
        if worker.lease:
            steps += self._end_lease_of(worker, "it does not hold its lease any more", now_s)
        return steps + self._schedule(now_s)

    def _registered(self, lease: int, *, goes_on: bool = False) -> Answer:
        limits = self._limits
        interval_s = self._registry.beat_interval_s
        return Answer(Registered(self.id, interval_s, limits.death_timeout_s, lease, goes_on))

    def _worker_message(self, peer: bytes, message: AnyMessage, now_s: float) -> list[Step]:
        worker = self._worker_of(peer)
        if worker is None:
            return [] if isinstance(message, Bye) else self._lease_message(message, now_s)
        worker.heard_s = now_s
        match message:
            case Beat():
                recovered = self._registry.beat(worker, message, now_s)
                steps: list[Step] = [Answer(BeatHeard(self._registry.beat_interval_s))]
                if recovered:
                    steps.append(Say(self._experiment_id_of(worker), f"{worker.role} {worker.uuid} moves again"))
                return steps
            case Bye():
                return self._goodbye(worker, message.reason, now_s)
            case _:
                return self._lease_message(message, now_s)

    def _lease_message(self, message: AnyMessage, now_s: float) -> list[Step]:
        experiment = self._experiments.get(self._lease_experiments.get(getattr(message, "lease", 0), ""))
        if experiment is None:
            if isinstance(message, ChunkReady):
                answer = ChunkAccepted(message.meta.chunk, 0, message.meta.policy, {}, rejected="no such lease")
                return [Answer(answer)]
            return []
        steps = experiment.receive(message, now_s)
        self._recollection.heard(experiment, message, steps)
        return steps

    # --- clients ---

    def _client_message(self, peer: bytes, message: ClientMessage, message_id: int, now_s: float) -> list[Step]:
        match message:
            case Submit():
                if self._closing is not None:
                    return [Answer(Rejected("closing", f"the coordinator is shutting down: {self._closing}"))]
                known = self._experiments.get(message.experiment or "")
                if known is not None:
                    return [Answer(Submitted(known.identity.id, known.identity.run_dir))]
                experiment = message.experiment or self._new_id()
                self._pending[experiment] = _Pending(peer, message_id, message)
                return [PrepareRun(experiment, message)]
            case StatusRequest():
                return [Answer(self.status(message.experiment, now_s))]
            case StopExperiment():
                return self._stop(message, now_s)
            case LogRequest():
                found = self._find_experiment(message.experiment)
                if isinstance(found, Rejected):
                    return [Answer(found)]
                return [ReadLog(peer, message_id, found.identity.run_dir, message, found.over)]
            case Shutdown():
                return [Answer(Done()), *self._begin_shutdown(message.reason, now_s)]

    def _stop(self, message: StopExperiment, now_s: float) -> list[Step]:
        found = self._find_experiment(message.experiment)
        if isinstance(found, Rejected):
            return [Answer(found)]
        if isinstance(found, LostRun):
            return [Answer(Done())]
        self._recollection.touch(found.identity.id)
        return [Answer(Done()), *found.stop(now=message.now, explanation="a client asked to stop", now_s=now_s)]

    def _run_prepared(self, event: RunPrepared, now_s: float) -> list[Effect]:
        pending = self._pending.pop(event.experiment)
        config = event.config
        identity = Identity(
            id=event.experiment,
            name=pending.submit.name,
            run_dir=event.run_dir,
            policy_file=event.policy_file,
            priority=pending.submit.priority,
            submitted=1 + max((each.identity.submitted for each in self._experiments.values()), default=-1),
        )
        self._lost = {id: lost for id, lost in self._lost.items() if lost.identity.run_dir != event.run_dir}
        experiment = Experiment(identity, config, now_s, event.resumed)
        if event.recovered is not None:
            experiment.resume(event.recovered.memory.experiment, event.recovered.chunks, now_s)
            if event.recovered.priorities is not None:
                experiment.experience.remember_priorities(event.recovered.priorities)
            experiment.count_late(event.uncounted)
        self._experiments[event.experiment] = experiment
        self._recollection.touch(event.experiment)
        steps: list[Step] = [
            Say(
                event.experiment,
                f"experiment {event.experiment} ({identity.name}) submitted; run folder {event.run_dir}",
            )
        ]
        effects = self._perform(steps + self._schedule(now_s), now_s)
        return effects + self._late_answer(pending, Submitted(event.experiment, event.run_dir), now_s)

    def _run_refused(self, event: RunRefused, now_s: float) -> list[Effect]:
        return self._late_answer(self._pending.pop(event.experiment), event.rejection, now_s)

    def _late_answer(self, pending: _Pending, message: AnyMessage, now_s: float) -> list[Effect]:
        return [*self._peers.answer(pending.peer, message, now_s, to=pending.message_id)]

    def _find_experiment(self, query: str) -> Experiment | LostRun | Rejected:
        return find(query, [*self._lost.values(), *self._experiments.values()])

    # --- leases and the herd ---

    def _schedule(self, now_s: float) -> list[Step]:
        if self._closing is not None:
            return []
        going_on = [experiment for experiment in self._experiments.values() if not experiment.over]
        demands = [demand for experiment in going_on if (demand := experiment.demand(now_s)) is not None]
        decided = Plan((), {})
        if demands:
            herd: dict[Role, int] = {role: self._registry.count(role) for role in ROLES}
            free: dict[Role, list[str]] = {role: self._registry.free(role) for role in ROLES}
            decided = plan(demands, free, [experiment.holding() for experiment in going_on], herd)
        steps: list[Step] = []
        for experiment in going_on:
            steps += experiment.wait(decided.waiting.get(experiment.identity.id), now_s)
        for grant in decided.grants:
            steps += self._assign(grant, now_s)
        for lent in decided.returns:
            self._recollection.touch(lent.holder)
            steps += self._experiments[lent.holder].lend(lent.lease, self._experiments[lent.waiting].identity.name)
        return steps

    def _assign(self, grant: Grant, now_s: float) -> list[Step]:
        self._leases += 1
        worker = self._registry.find(grant.worker)
        assert worker is not None
        self._registry.give(worker, self._leases)
        worker.progressed_s = now_s
        self._lease_holders[self._leases] = (grant.experiment, grant.worker)
        self._lease_experiments[self._leases] = grant.experiment
        self._recollection.touch(grant.experiment)
        return self._experiments[grant.experiment].assign(self._leases, grant.role, grant.worker, now_s)

    def _release(self, release: Release, now_s: float) -> list[Step]:
        _, uuid = self._lease_holders.pop(release.lease, ("", ""))
        worker = self._registry.find(uuid)
        if worker is None or worker.lease != release.lease:
            return []
        self._registry.give(worker, 0)
        worker.stuck = False
        if release.dismiss:
            return self._give_up(worker, "it did not let go when its experiment ended", now_s)
        return []

    def _end_lease_of(self, worker: Worker, why: str, now_s: float) -> list[Step]:
        experiment_id, _ = self._lease_holders.pop(worker.lease, ("", ""))
        experiment = self._experiments.get(experiment_id)
        lease = worker.lease
        self._registry.give(worker, 0)
        if experiment is None:
            return []
        self._recollection.touch(experiment_id)
        return experiment.worker_gone(lease, why, now_s)

    def _goodbye(self, worker: Worker, reason: str, now_s: float) -> list[Step]:
        steps = self._end_lease_of(worker, f"it left ({reason})", now_s)
        self._registry.remove(worker)
        steps.append(Say(None, f"{worker.role} {worker.uuid} leaves the herd: {reason}"))
        return steps + self._schedule(now_s)

    def _dismiss(self, worker: Worker, reason: str, now_s: float) -> list[Step]:
        """Tell a life of a worker to end, and forget it."""
        self._registry.remove(worker)
        return [*self._peers.post(worker.peer, Leave(reason), now_s)]

    def _give_up(self, worker: Worker, why: str, now_s: float) -> list[Step]:
        """Take a worker out that does not answer. Its process ends, and its nanny starts it anew."""
        steps = self._end_lease_of(worker, why, now_s)
        self._registry.remove(worker)
        return [*steps, *self._peers.post(worker.peer, Rejected("dismissed", why), now_s)]

    def _worker_of(self, peer: bytes) -> Worker | None:
        worker = self._registry.find(peer.split(b":", 1)[0].decode(errors="replace"))
        return worker if worker is not None and worker.peer == peer else None

    def _holders(self) -> dict[int, Worker]:
        return {worker.lease: worker for worker in self._registry if worker.lease}

    def _experiment_id_of(self, worker: Worker) -> str | None:
        return self._lease_experiments.get(worker.lease)

    def _worker_status(self, worker: Worker, now_s: float) -> WorkerStatus:
        experiment = self._experiments.get(self._experiment_id_of(worker) or "") if worker.lease else None
        id = None if experiment is None else experiment.identity.id
        return worker.status(id, None if experiment is None else experiment.work_share(worker.uuid), now_s)

    # --- time and the end ---

    def _tick(self, now_s: float) -> list[Effect]:
        steps = self._look_after_the_herd(now_s) if now_s >= self._herd_due_s else []
        for experiment in self._experiments.values():
            steps += self._ticked(experiment, now_s)
        self._recollection.ticked(self._experiments.values(), now_s)
        effects = self._perform(steps + self._schedule(now_s), now_s)
        self._peers.expire(now_s, keep=lambda peer: self._worker_of(peer) is not None)
        return [*effects, *self._peers.due(now_s), *self._say_farewell(now_s)]

    def _look_after_the_herd(self, now_s: float) -> list[Step]:
        """Who is lost, and who does not move."""
        self._herd_due_s = now_s + HERD_INTERVAL_S
        steps: list[Step] = []
        for worker in self._registry.lost(now_s):
            steps.append(Say(None, f"{worker.role} {worker.uuid} is lost: silent for {now_s - worker.heard_s:.1f} s"))
            steps += self._end_lease_of(worker, f"lost, silent for {now_s - worker.heard_s:.1f} s", now_s)
            self._registry.remove(worker)
        for worker in self._registry.newly_stuck(now_s):
            text = f"{worker.role} {worker.uuid} is stuck: beats, but no progress while {worker.activity}"
            steps.append(Say(self._experiment_id_of(worker), text, "warning"))
        for worker in self._registry.hopeless(now_s):
            steps += self._give_up(worker, f"stuck, no progress for {now_s - worker.progressed_s:.0f} s", now_s)
        return steps

    def _ticked(self, experiment: Experiment, now_s: float) -> list[Step]:
        steps = experiment.tick(now_s)
        if any(not isinstance(step, Emit) for step in steps):
            self._recollection.touch(experiment.identity.id)
        return steps

    def _shut_down(self, reason: str, now_s: float) -> list[Effect]:
        return self._perform(self._begin_shutdown(reason, now_s), now_s)

    def _begin_shutdown(self, reason: str, now_s: float) -> list[Step]:
        hurry = self._closing is not None
        self._closing = self._closing or reason
        steps: list[Step] = [Say(None, f"shutting down: {reason}")]
        for experiment in self._experiments.values():
            self._recollection.touch(experiment.identity.id)
            steps += experiment.stop(now=hurry, explanation=f"the coordinator is shutting down: {reason}", now_s=now_s)
        return steps

    def _say_farewell(self, now_s: float) -> list[Effect]:
        """Once every experiment is over, send the workers home and end when they have gone."""
        if self._closing is None or not all(experiment.over for experiment in self._experiments.values()):
            return []
        if self._farewell_s is None:
            self._farewell_s = now_s
            effects: list[Effect] = []
            for worker in self._registry:
                effects += self._peers.post(worker.peer, Leave(f"the coordinator ends: {self._closing}"), now_s)
            return effects
        if len(self._registry) == 0 or now_s - self._farewell_s > FAREWELL_S:
            return [Exit()]
        return []

    # --- steps to effects ---

    def _perform(
        self, steps: Iterable[Step], now_s: float, *, peer: bytes | None = None, message_id: int = 0
    ) -> list[Effect]:
        effects: list[Effect] = []
        for step in steps:
            match step:
                case Tell():
                    effects += self._tell(step, now_s)
                case Answer():
                    assert peer is not None, "an answer outside a conversation"
                    effects += self._peers.answer(peer, step.message, now_s, to=message_id)
                case Release():
                    effects += self._perform(self._release(step, now_s), now_s)
                case _:
                    effects.append(step)
        return effects

    def _tell(self, tell: Tell, now_s: float) -> list[Effect]:
        _, uuid = self._lease_holders.get(tell.lease, ("", ""))
        worker = self._registry.find(uuid)
        if worker is None or worker.lease != tell.lease:
            return []
        return [*self._peers.post(worker.peer, tell.message, now_s)]
