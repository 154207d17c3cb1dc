"""What workers say to their coordinator: who they are, that they live, and what their work has come to."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta, field
from numpy.typing import NDArray

from remuda.wire.messages.parts import (
    AnyReturns,
    CheckpointReason,
    CheckpointRecord,
    ChunkMeta,
    Count,
    EpisodeInfo,
    EpisodeLengths,
    FileName,
    LongText,
    Message,
    Part,
    Phase,
    PolicyRef,
    Role,
    Seconds,
    ShortText,
    Uuid,
    check_episodes,
)

Numbers = Annotated[dict[ShortText, float], Meta(max_length=1_000)]
"""By name; nan or infinite where that is what they are."""


class Register(Message, frozen=True):
    """First word over each connection of a worker. Answered by Registered or Rejected."""

    worker: Uuid
    incarnation: Count
    role: Role
    host: ShortText
    pid: Count
    protocol: Count
    version: ShortText
    """Version of Remuda, for people; only `protocol` must agree."""
    cpus: Count = 0
    """Cores that its process may use; 0: not said."""
    memory_bytes: Count = 0
    """Of its machine."""
    lease: Count = 0
    """The lease it holds already: not 0 where it has outlived a coordinator, or lost touch with it for a while."""
    former_exit: ShortText = ""
    """How the life before this one ended, as its nanny saw it: `signal 6 (SIGABRT)`. Empty where nobody saw it."""


class Beat(Message, frozen=True):
    """Sent every beat interval, by a second thread while the first one works: so a worker whose beats stop is dead or
    cut off, and one whose `progress` stops while it holds a lease is stuck. Answered by BeatHeard. Not resent."""

    progress: Count
    """Grows with every bit of work done: environment steps, updates, evaluated steps."""
    activity: ShortText
    """What the worker is doing, for people: `collecting`, `waiting for credit`, `training`."""
    lease: Count = 0
    """The lease it believes it holds; 0 none."""
    rss_bytes: Count = 0
    cpu_s: Seconds = 0.0
    phase: Phase = "working"


class Ready(Message, frozen=True):
    """The lease's work can start: environments built, networks made (a learner: policy file published)."""

    lease: Count
    warnings: Annotated[list[ShortText], Meta(max_length=100)] = field(default_factory=list[str])
    """For the commander's log: the checkpoint that a learner goes on from is of another version of torch, say."""


class ChunkReady(Message, frozen=True):
    """A payload lies in data/. Resent until answered by ChunkAccepted; counted once however often it comes."""

    lease: Count
    meta: ChunkMeta


class CollectorReport(Message, frozen=True):
    """What a collector did since its last report; the commander's collector log shows it."""

    lease: Count
    train_iter: Count
    """Of the policy it acts with."""
    episode_count: Count
    step_count: Count
    duration_s: Seconds
    reward_mean: float
    """nan where no episode finished."""
    reward_std: float
    statistics: Numbers = field(default_factory=dict[str, float])
    """More of the episodes' returns, lengths and what they reported: `reward_median`, `length_max`; nan likewise."""


class TimedBlock(Part, frozen=True):
    """What a process spends time on."""

    path: Annotated[str, Meta(max_length=1_000, pattern=r"^[^/]+(/[^/]+){0,15}\Z")]
    """`collect/act` is the block `act` inside `collect`."""
    count: Count
    """How often it was entered."""
    total_s: Seconds


class WorkerVitals(Message, frozen=True):
    """How a lease's time has been spent so far: totals, which replace those sent before. Sent every few seconds, and
    when the lease ends."""

    lease: Count
    elapsed_s: Seconds
    """Since the lease began."""
    cpu_s: Seconds
    """Processor time since then, of all threads."""
    rss_bytes: Count
    blocks: Annotated[list[TimedBlock], Meta(max_length=1_000)]


class BatchRequest(Message, frozen=True):
    """The learner asks for batches and gives priorities back. Answered by Batches once there are enough rows."""

    lease: Count
    request: Count
    """Counts up from 1 with every request of the lease."""
    oldest: Count
    """The lowest number of a request that is not answered yet, this one included."""
    batches: Annotated[int, Meta(ge=1, le=4_096)]
    batch_size: Annotated[int, Meta(ge=1, le=1_000_000)]
    train_iter: Count
    """Updates done so far."""
    loaded_row: Count
    """Every live row below this id is in the learner's ring; chunks below may be deleted once evicted."""
    priority_rows: NDArray[np.int64]
    """int64 [n]: rows with a new priority."""
    priorities: NDArray[np.float32]
    """float32 [n]: their absolute errors, before exponent and offset."""

    def __post_init__(self) -> None:
        """Raise ValueError for priorities that are not one of each row."""
        if self.priority_rows.ndim != 1 or self.priority_rows.shape != self.priorities.shape:
            raise ValueError(f"priorities of shape {self.priorities.shape} for rows of {self.priority_rows.shape}")


class ChunkUnreadable(Message, frozen=True):
    """A payload in data/ is missing or damaged. Its rows are not sampled any more; its steps stay counted."""

    lease: Count
    file: FileName
    reason: ShortText


class PolicyPublished(Message, frozen=True):
    """The policy file now holds this policy."""

    lease: Count
    policy: PolicyRef


class LearnerReport(Message, frozen=True):
    """What the algorithm monitors, averaged since the last report. Sent every log interval."""

    lease: Count
    train_iter: Count
    metrics: Numbers


class CheckpointSaved(Message, frozen=True):
    """A checkpoint lies in ckpt/, complete and synced."""

    lease: Count
    request: Count
    reason: CheckpointReason
    record: CheckpointRecord


class EvaluationDone(Message, frozen=True):
    """The share of an evaluation that one evaluator played."""

    lease: Count
    evaluation: Count
    first_episode: Count
    returns: AnyReturns
    lengths: EpisodeLengths
    duration_s: Seconds
    info: EpisodeInfo = field(default_factory=dict[str, list[float]])
    """What these episodes reported besides."""

    def __post_init__(self) -> None:
        """Raise ValueError where episodes lack a return or a length."""
        check_episodes(self.returns, self.lengths, self.info)


class Drained(Message, frozen=True):
    """The lease has ended cleanly: nothing unfinished, nothing unannounced. The worker is idle again."""

    lease: Count


class WorkerFailed(Message, frozen=True):
    """An exception ended the lease's work. The worker is free for another lease; or it is in doubt of itself and exits,
    and its nanny starts the next incarnation."""

    lease: Count
    error: ShortText
    traceback: LongText
    hopeless: bool = False
    """Another worker would fail alike: the run is over."""
    hung: bool = False
    """No exception: its work did not let go, and it says where it hangs before its process ends."""


class Bye(Message, frozen=True):
    """The worker leaves for good: told to, or asked by its operating system."""

    reason: ShortText
