"""Which experiments have something new that a restarted coordinator must know, and what that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from remuda.coordinator.effects import DeleteChunks, Emit, Remember, Step, Tell
from remuda.coordinator.experiment import Experiment
from remuda.coordinator.identity import Identity
from remuda.coordinator.memory import FORMAT, HolderMemory, IdentityMemory, RunMemory
from remuda.coordinator.registry import Worker
from remuda.wire.messages import AnyMessage, Batches, CollectorReport, LearnerReport, WorkerVitals

SOFT_S = 1.0
"""What may be forgotten for so long: updates done, rows sampled, the wall clock."""
PRIORITIES_S = 30.0
"""Between two snapshots of all priorities."""
_SOFT = (CollectorReport, LearnerReport, WorkerVitals)


class Recollection:
    """Gathers, per turn of the coordinator's loop, what must be in the journal before anybody is answered."""

    def __init__(self) -> None:
        self._touched: set[str] = set()
        self._soft_due_s = 0.0
        self._priorities_due_s: dict[str, float] = {}

    def touch(self, experiment: str) -> None:
        """Something happened to this experiment."""
        self._touched.add(experiment)

    @property
    def has_news(self) -> bool:
        """Whether anything was touched since the last `take`."""
        return bool(self._touched)

    def heard(self, experiment: Experiment, message: AnyMessage, steps: Sequence[Step]) -> None:
        """A worker's message was handled; some change nothing that would be missed, or nothing that does not keep,
        unless they led to something: credit, a save, a row of progress, the end."""
        soft = isinstance(message, _SOFT) or experiment.is_soft(message)
        if not (soft and all(_leaves_no_trace(step) for step in steps)):
            self.touch(experiment.identity.id)

    def ticked(self, experiments: Iterable[Experiment], now_s: float) -> None:
        """Time has passed: what keeps for a while is due now and then."""
        if now_s < self._soft_due_s:
            return
        self._soft_due_s = now_s + SOFT_S
        self._touched |= {experiment.identity.id for experiment in experiments if not experiment.over}

    def take(
        self, experiments: Mapping[str, Experiment], holders: Mapping[int, Worker], leases: int, now_s: float
    ) -> list[Remember]:
        """What to write now. `holders` are the workers by lease, `leases` the highest lease number given out."""
        touched, self._touched = self._touched, set()
        return [self._remember(experiments[id], holders, leases, now_s) for id in sorted(touched)]

    def _remember(self, experiment: Experiment, holders: Mapping[int, Worker], leases: int, now_s: float) -> Remember:
        id = experiment.identity.id
        added, gone = experiment.experience.news()
        due = experiment.over or now_s >= self._priorities_due_s.setdefault(id, now_s + PRIORITIES_S)
        if due:
            self._priorities_due_s[id] = now_s + PRIORITIES_S
        held = [_holder(lease, holders[lease]) for lease in experiment.lease_numbers if lease in holders]
        memory = RunMemory(
            FORMAT, identity_memory(experiment.identity, experiment.config_json), experiment.memory(now_s), held, leases
        )
        priorities = experiment.experience.priorities() if due else None
        return Remember(id, memory, added, gone, priorities, experiment.new_episodes())


def _leaves_no_trace(step: Step) -> bool:
    return isinstance(step, Emit | DeleteChunks) or (isinstance(step, Tell) and isinstance(step.message, Batches))


def identity_memory(identity: Identity, config_json: str) -> IdentityMemory:
    """What an experiment is called and was submitted with."""
    return IdentityMemory(
        identity.id,
        identity.name,
        identity.run_dir,
        identity.policy_file,
        identity.priority,
        identity.submitted,
        config_json,
    )


def identity_of(memory: IdentityMemory) -> Identity:
    """The identity that was remembered so."""
    return Identity(
        id=memory.id,
        name=memory.name,
        run_dir=memory.run_dir,
        policy_file=memory.policy_file,
        priority=memory.priority,
        submitted=memory.submitted,
    )


def _holder(lease: int, worker: Worker) -> HolderMemory:
    return HolderMemory(lease, worker.uuid, worker.incarnation, worker.role, worker.host, worker.pid)
