"""Messages of workers to their coordinator: registration, beats, and results of work."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta, field
from numpy.typing import NDArray

from remuda.config.section import MOST_COLLECTED
from remuda.wire.messages.callbacks import CallbackAnswer
from remuda.wire.messages.parts import (
    MOST_ACTION_DIMENSIONS,
    AnyReturns,
    CheckpointReason,
    CheckpointRecord,
    ChunkMeta,
    Count,
    EpisodeInfo,
    EpisodeLengths,
    FileName,
    Film,
    Histogram,
    InferenceServer,
    LongText,
    Message,
    MetricName,
    MetricValue,
    OfOthers,
    Part,
    Phase,
    PolicyRef,
    Reanalysis,
    Role,
    Seconds,
    Sha256,
    ShortText,
    Uuid,
    check_episodes,
)

Numbers = Annotated[dict[ShortText, float], Meta(max_length=1_000)]
"""Numbers by name; may be nan or infinite."""


class Register(Message, frozen=True):
    """First message over each connection of a worker. Answered by Registered or Rejected."""

    worker: Uuid
    incarnation: Count
    role: Role
    host: ShortText
    pid: Count
    protocol: Count
    version: ShortText
    """Version of Remuda, for people; only `protocol` must agree."""
    cpus: Count = 0
    """Cores for the process; 0: unknown."""
    memory_bytes: Count = 0
    """Memory of the machine."""
    lease: Count = 0
    """The worker's present lease; not 0 if the coordinator was restarted, or the connection was lost for a while."""
    former_exit: ShortText = ""
    """End of the former incarnation, as seen by its nanny: `signal 6 (SIGABRT)`. Empty if unknown."""


class Beat(Message, frozen=True):
    """Sent every beat interval, by a second thread while the first thread works. A worker without beats is dead or cut
    off; a worker with a lease and without growing `progress` is stuck. Answered by BeatHeard. Not resent."""

    progress: Count
    """Grows with all work done: environment steps, updates, evaluated steps."""
    activity: ShortText
    """Present activity, for people: `collecting`, `waiting for credit`, `training`."""
    lease: Count = 0
    """The worker's present lease; 0: none."""
    rss_bytes: Count = 0
    cpu_s: Seconds = 0.0
    phase: Phase = "working"
    lacks_bytes: Count = 0
    """Bytes to write without room on the run's disk; 0: the disk has room."""


class Ready(Message, frozen=True):
    """The lease's work can start: environments built, networks made (a learner: policy file published)."""

    lease: Count
    warnings: Annotated[list[ShortText], Meta(max_length=100)] = field(default_factory=list[str])
    """Lines for the commander's log, for instance about a checkpoint of another version of torch."""


class ChunkReady(Message, frozen=True):
    """A payload is in data/. Resent until answered by ChunkAccepted; counted once, whatever the
    number of repetitions."""

    lease: Count
    meta: ChunkMeta
    """Metadata; with several policies, of the first policy."""
    others: Annotated[list[ChunkMeta], OfOthers] = field(default_factory=list[ChunkMeta])
    """The same chunk for the other policies."""


class CollectorReport(Message, frozen=True):
    """Work of a collector since its last report; shown in the commander's collector log."""

    lease: Count
    train_iter: Count
    """train_iter of the acting policy."""
    episode_count: Count
    step_count: Count
    duration_s: Seconds
    reward_mean: float
    """nan if no episode finished."""
    reward_std: float
    statistics: Numbers = field(default_factory=dict[str, float])
    """More statistics of returns, lengths and env.episode_info: `reward_median`, `length_max`; nan if no episode
    finished."""
    metrics: Annotated[dict[MetricName, MetricValue], Meta(max_length=MOST_COLLECTED)] = field(
        default_factory=dict[str, float]
    )
    """Means over these steps, under the names of Declaration.collected."""
    policy_index: Count = 0
    """Index of the policy, in the order of names; for several policies."""


class TimedBlock(Part, frozen=True):
    """Time of a process in one block of code."""

    path: Annotated[str, Meta(max_length=1_000, pattern=r"^[^/]+(/[^/]+){0,15}\Z")]
    """`collect/act` is the block `act` inside `collect`."""
    count: Count
    """Number of entries into the block."""
    total_s: Seconds


class WorkerVitals(Message, frozen=True):
    """Time use of a lease so far: totals, which replace earlier totals. Sent every few seconds, and at the end of the
    lease."""

    lease: Count
    elapsed_s: Seconds
    """Since the lease began."""
    cpu_s: Seconds
    """Processor time since then, of all threads."""
    rss_bytes: Count
    blocks: Annotated[list[TimedBlock], Meta(max_length=1_000)]


class BatchRequest(Message, frozen=True):
    """The learner requests batches and returns priorities. Answered by Batches when enough rows exist."""

    lease: Count
    request: Count
    """Counts up from 1 with every request of the lease."""
    oldest: Count
    """Lowest number of a request without an answer, including this request."""
    batches: Annotated[int, Meta(ge=1, le=4_096)]
    batch_size: Annotated[int, Meta(ge=1, le=1_000_000)]
    train_iter: Count
    """Updates done so far."""
    loaded_row: Count
    """Every live row below this id is in the learner's ring; evicted chunks below it may be deleted."""
    priority_rows: NDArray[np.int64]
    """int64 [n]: rows with a new priority."""
    priorities: NDArray[np.float32]
    """float32 [n]: absolute errors of the rows, before exponent and offset."""
    loaded_reanalysis: Count = 0
    """Highest number of a reanalysis that the learner has read, or skipped because its file was gone."""

    def __post_init__(self) -> None:
        """Raise ValueError unless the numbers of priorities and rows agree."""
        if self.priority_rows.ndim != 1 or self.priority_rows.shape != self.priorities.shape:
            raise ValueError(f"priorities of shape {self.priorities.shape} for rows of {self.priority_rows.shape}")


class ChunkUnreadable(Message, frozen=True):
    """A payload in data/ is missing or damaged. Its rows are not sampled any more; its steps remain counted."""

    lease: Count
    file: FileName
    reason: ShortText


class PolicyPublished(Message, frozen=True):
    """The policy file now holds this policy."""

    lease: Count
    policy: PolicyRef


class TargetPublished(Message, frozen=True):
    """The file of the target network now holds this network. Only in runs with reanalyzers."""

    lease: Count
    policy: PolicyRef


class Reanalyzed(Message, frozen=True):
    """The result of Reanalyze is in data/. Counted once, whatever the number of repetitions."""

    lease: Count
    request: Count
    meta: Reanalysis
    policy_index: Count = 0
    """As in the request."""


class InferenceJoined(Message, frozen=True):
    """A collector is ready to ask inference workers, or an inference worker to answer. Each has a new pair of keys for
    the lease, and says so again after a new registration: the coordinator does not journal it."""

    lease: Count
    key: Sha256
    """Its public key, as hexadecimal digits."""
    server: InferenceServer | None = None
    """Of an inference worker, with the same key."""


class NotReanalyzed(Message, frozen=True):
    """The request Reanalyze cannot be computed: the payload is missing or damaged."""

    lease: Count
    request: Count
    reason: ShortText
    policy_index: Count = 0
    """As in the request."""


class LearnerReport(Message, frozen=True):
    """The algorithm's metrics, over the updates since the last report. Sent every log interval."""

    lease: Count
    train_iter: Count
    metrics: Numbers
    """Average of each metric by name, and for some metrics further statistics, as `total_loss_std`."""


class CheckpointSaved(Message, frozen=True):
    """A checkpoint is in ckpt/, complete and synced."""

    lease: Count
    request: Count
    reason: CheckpointReason
    record: CheckpointRecord


class EvaluationDone(Message, frozen=True):
    """One evaluator's part of an evaluation."""

    lease: Count
    evaluation: Count
    first_episode: Count
    returns: AnyReturns
    lengths: EpisodeLengths
    duration_s: Seconds
    info: EpisodeInfo = field(default_factory=dict[str, list[float]])
    """More values of these episodes."""
    actions: Annotated[dict[ShortText, Histogram], Meta(max_length=MOST_ACTION_DIMENSIONS)] = field(
        default_factory=dict[str, Histogram]
    )
    """Histograms of the actions in these episodes: `action`, or `action_0`, `action_1` … for a Box. Empty if
    log.histograms is false."""
    cut: Count = 0
    """Number of these episodes stopped early, at evaluator.max_episode_steps."""
    policy_index: Count = 0
    """As in Evaluate."""

    def __post_init__(self) -> None:
        """Raise ValueError if a return or a length is missing, or more episodes were cut than played."""
        check_episodes(self.returns, self.lengths, self.info)
        if self.cut > len(self.returns):
            raise ValueError(f"{self.cut} of {len(self.returns)} episodes were cut")


class EvaluationFilmed(Message, frozen=True):
    """A film of the first episode of an evaluation, which was played again for the film. Sent after EvaluationDone, so
    no evaluation waits for its film."""

    lease: Count
    train_iter: Count
    """train_iter of the played checkpoint."""
    env_step: Count
    film: Film


class CallbacksDecided(Message, frozen=True):
    """The learner has called the callbacks about an event. Counted once, whatever the number of repetitions."""

    lease: Count
    number: Count
    """As in CallCallbacks."""
    answer: CallbackAnswer


class Drained(Message, frozen=True):
    """The lease has ended cleanly: nothing is unfinished or unannounced. The worker is idle again."""

    lease: Count


class WorkerFailed(Message, frozen=True):
    """An exception ended the work of the lease. The worker is free for another lease; a process in a possibly bad state
    exits instead, and its nanny starts the next incarnation."""

    lease: Count
    error: ShortText
    traceback: LongText
    hopeless: bool = False
    """Another worker would fail in the same way: the run is over."""
    hung: bool = False
    """True for hanging work without an exception: the worker sends the stacks before the process ends."""


class Bye(Message, frozen=True):
    """The worker leaves for good, by request or by a signal."""

    reason: ShortText


WorkerMessage = (
    Register
    | Beat
    | Ready
    | ChunkReady
    | CollectorReport
    | WorkerVitals
    | BatchRequest
    | ChunkUnreadable
    | PolicyPublished
    | TargetPublished
    | Reanalyzed
    | NotReanalyzed
    | InferenceJoined
    | LearnerReport
    | CheckpointSaved
    | CallbacksDecided
    | EvaluationDone
    | EvaluationFilmed
    | Drained
    | WorkerFailed
    | Bye
)
