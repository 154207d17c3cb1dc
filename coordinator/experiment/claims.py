"""Whether a worker's message can be true: it must be about its own lease, and some things cannot be true at all.

This is checked before anything is changed. A worker that sends something impossible loses its lease; others do not
notice.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from msgspec import Struct

from remuda.buffer.chunk import chunk_name
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.callbacks import CallbackDispatch
from remuda.coordinator.experiment.flow_control import FlowControl
from remuda.coordinator.experiment.reanalysis import ReanalysisBook, is_its_own
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.policy.algorithms import declaration
from remuda.training.commander.curriculum import Curriculum
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import (
    AnyMessage,
    BatchRequest,
    CallbacksDecided,
    CheckpointSaved,
    ChunkReady,
    ChunkUnreadable,
    CollectorReport,
    Drained,
    EvaluationDone,
    EvaluationFilmed,
    LearnerReport,
    NotReanalyzed,
    PolicyPublished,
    Ready,
    Reanalyzed,
    Role,
    TargetPublished,
    WorkerFailed,
    WorkerVitals,
)

UNDER_A_LEASE = (
    Ready,
    ChunkReady,
    CollectorReport,
    WorkerVitals,
    BatchRequest,
    ChunkUnreadable,
    PolicyPublished,
    TargetPublished,
    LearnerReport,
    CheckpointSaved,
    CallbacksDecided,
    EvaluationDone,
    EvaluationFilmed,
    Reanalyzed,
    NotReanalyzed,
    Drained,
    WorkerFailed,
)
"""Messages about the work of a lease."""
_ROLES: dict[type[AnyMessage], Role] = {
    ChunkReady: "collector",
    CollectorReport: "collector",
    BatchRequest: "learner",
    ChunkUnreadable: "learner",
    PolicyPublished: "learner",
    TargetPublished: "learner",
    LearnerReport: "learner",
    CheckpointSaved: "learner",
    CallbacksDecided: "learner",
    EvaluationDone: "evaluator",
    EvaluationFilmed: "evaluator",
    Reanalyzed: "reanalyzer",
    NotReanalyzed: "reanalyzer",
}
"""The role that each message is about; the others may come from any role."""


class Speaker(Struct, frozen=True):
    """One incarnation of a worker, from the identity of its connection."""

    worker: str
    incarnation: int


NOBODY = Speaker("", -1)
"""Holds no lease."""


def speaker_at(peer: bytes) -> Speaker:
    """The worker that a connection claims to be of; NOBODY if it is no worker. See worker_identity."""
    worker, _, rest = peer.partition(b":")
    incarnation = rest.partition(b":")[0]
    if len(worker) != 36 or not worker.isascii() or not (incarnation.isdigit() and len(incarnation) <= 16):
        return NOBODY
    return Speaker(worker.decode("ascii"), int(incarnation))


@dataclass(kw_only=True)
class Claims:
    """Checks messages of workers against what one experiment knows."""

    config: ExperimentConfig
    leases: LeaseBook
    replay: ReplayAccounting
    flow: FlowControl
    reanalysis: ReanalysisBook
    callbacks: CallbackDispatch
    curriculum: Curriculum

    def __post_init__(self) -> None:
        """Values that every chunk is checked against are computed once."""
        self.num_envs = self.config.env.num_envs
        self.metrics = frozenset(declaration(self.config).collected)
        """The names that collectors may report means under."""

    @property
    def most_env_steps(self) -> int:
        """The most in one chunk: a chunk ends with a whole step of the vector, and may end a good deal later than it
        should."""
        return 2 * (self.flow.chunk_slots + self.num_envs)

    def disbelief(self, message: AnyMessage, speaker: Speaker) -> str | None:
        """Why this cannot be true; None if it can. Leases that are over are not checked here."""
        lease = self.leases.find(getattr(message, "lease", 0))
        if lease is None:
            return None
        if why := _of_lease(lease, message, speaker):
            return why
        if isinstance(message, ChunkReady):  # most are
            return self.of_chunk(message, speaker)
        match message:
            case BatchRequest():
                return self._of_request(message)
            case PolicyPublished() | TargetPublished():
                return self._of_epoch(message.policy.epoch)
            case Reanalyzed() | NotReanalyzed():
                return self.of_reanalysis(message, speaker) or self.reanalysis.disbelief(message)
            case CheckpointSaved() | CallbacksDecided():
                return self._of_answer(message)
            case CollectorReport():
                return self._of_metrics(message.metrics.keys())
            case WorkerFailed(hopeless=True) if lease.role != "learner":
                return f"it says that the run is hopeless, which only a learner can, and is a {lease.role}"
            case _:
                return None

    def is_late_word_of(self, speaker: Speaker, lease: int) -> bool:
        """Whether this lease is over and the sender held it."""
        return self.leases.was_held_by(lease, speaker.worker, speaker.incarnation)

    def of_chunk(self, message: ChunkReady, speaker: Speaker) -> str | None:
        """Why this chunk cannot be the sender's, or cannot be as it is described; also for a lease that is over."""
        meta, chunk = message.meta, message.meta.chunk
        if message.others and len(message.others) != self.flow.others:
            return f"its chunk {meta.file} is of {1 + len(message.others)} policies"
        own = chunk.worker == speaker.worker and chunk.incarnation == speaker.incarnation
        if not own or meta.file != chunk_name(chunk):
            return f"it announces {meta.file}, which is not the file of a chunk of its own"
        lane_steps = meta.env_steps * self.replay.plan.agents
        if meta.env_steps > self.most_env_steps or len(meta.episode_returns) > lane_steps + self.num_envs:
            steps = f"{meta.env_steps} environment steps with {len(meta.episode_returns)} ends of episodes"
            return f"its chunk {meta.file} has {steps}, and {self.most_env_steps} is the most there can be"
        if meta.rows > self.replay.plan.most_rows(meta.env_steps):
            return f"its chunk {meta.file} has {meta.rows} rows of {meta.env_steps} environment steps"
        if meta.policy.epoch > self.flow.epoch:
            return f"its chunk {meta.file} is of policy epoch {meta.policy.epoch}, and the newest is {self.flow.epoch}"
        if meta.task > self.curriculum.number:
            return f"its chunk {meta.file} is of task {meta.task}, and the newest is {self.curriculum.number}"
        if any(metric.steps > lane_steps for metric in meta.metrics.values()):
            return f"its chunk {meta.file} has means over more than its {meta.env_steps} environment steps"
        if why := self._of_metrics(meta.metrics.keys()):
            return why
        if self.flow.is_beyond_credit(message.lease, self.replay.plan.slots(meta)):
            return f"its chunk {meta.file} was collected far beyond its credit"
        return None

    def of_reanalysis(self, message: Reanalyzed | NotReanalyzed, speaker: Speaker) -> str | None:
        """Why this reanalysis cannot be the sender's; also for a lease that is over."""
        if isinstance(message, NotReanalyzed):
            return None
        meta = message.meta
        if not is_its_own(meta, speaker.worker, speaker.incarnation):
            return f"it announces {meta.file}, which is not the file of a reanalysis of its own"
        if meta.target.epoch > self.flow.epoch:
            return f"its reanalysis {meta.file} is of epoch {meta.target.epoch}, and the newest is {self.flow.epoch}"
        return None

    def _of_metrics(self, names: Set[str]) -> str | None:
        unknown = sorted(names - self.metrics)
        return f"it reports {unknown[0]!r}, which its algorithm does not declare" if unknown else None

    def _of_request(self, message: BatchRequest) -> str | None:
        plan = self.replay.plan
        if (message.batches, message.batch_size) != (plan.batches_per_request, plan.rows_per_update):
            return (
                f"it asks for {message.batches} batches of {message.batch_size} rows, and its config says "
                f"{plan.batches_per_request} of {plan.rows_per_update}"
            )
        if not self.flow.may_be_asked(message):
            return f"its request {message.request} is far beyond those that were answered"
        told_row = self.flow.told_row
        if message.loaded_row > told_row:
            return f"it has loaded the rows below {message.loaded_row}, and was told of those below {told_row}"
        if message.loaded_reanalysis > self.reanalysis.accepted:
            return f"it has read reanalysis {message.loaded_reanalysis}, and there are {self.reanalysis.accepted}"
        return None

    def _of_epoch(self, epoch: int) -> str | None:
        mine = self.flow.epoch
        return None if epoch == mine else f"it publishes under epoch {epoch}, and was given {mine}"

    def _of_answer(self, message: CheckpointSaved | CallbacksDecided) -> str | None:
        if isinstance(message, CallbacksDecided):
            return self.callbacks.disbelief(message)
        record = message.record
        if record.file != f"iteration_{record.train_iter}.pth.tar":
            return f"its checkpoint of iteration {record.train_iter} is called {record.file}"
        if record.env_step > self.replay.env_step or record.episode > self.replay.episode:
            return f"its checkpoint is of env_step {record.env_step}, and {self.replay.env_step} were collected"
        if record.policy.epoch > self.flow.epoch:
            return f"its checkpoint is of epoch {record.policy.epoch}, and it was given {self.flow.epoch}"
        return None


def _of_lease(lease: Lease, message: AnyMessage, speaker: Speaker) -> str | None:
    """Why this worker cannot say this under this lease."""
    if not lease.is_held_by(speaker.worker, speaker.incarnation):
        return f"it speaks for lease {lease.number}, which is not its own"
    role = _ROLES.get(type(message))
    if role is not None and role != lease.role:
        return f"it says {type(message).__name__}, which only a {role} can, and is a {lease.role}"
    return None
