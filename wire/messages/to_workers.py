"""What the coordinator says to its workers: welcome, leases and their ends, and what the work needs meanwhile."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta, field
from numpy.typing import NDArray

from remuda.config.bounds import MOST_EVALUATION_EPISODES
from remuda.wire.messages.parts import (
    CheckpointReason,
    ChunkId,
    Count,
    Counters,
    IndexedChunk,
    LongText,
    Message,
    PathText,
    PolicyRef,
    ShortText,
    Uuid,
)


class Registered(Message, frozen=True):
    """Welcome. Beats begin, and whatever waited for this may be said."""

    coordinator: Uuid
    """This coordinator's own id, as in its connection file."""
    beat_interval_s: float
    lease: Count = 0
    """The lease that the worker said it holds."""
    goes_on: bool = False
    """It still does; else it lets go of that lease (not of one that it was given since)."""


class BeatHeard(Message, frozen=True):
    """The coordinator is alive. The next beat may wait for so long: the larger the herd, the longer."""

    next_s: float = 1.0


class Assign(Message, frozen=True):
    """A lease: work for this experiment until told to drain. Answered by Ready when the work can start."""

    lease: Count
    experiment: Uuid
    name: ShortText
    run_dir: PathText
    """Absolute."""
    config_json: LongText
    index: Count
    """Which of the experiment's collectors (or evaluators) this is: 0, 1, 2 …; seeds are derived from it."""
    life: Count
    """How many leases of this role and index there were before, over all lives of the run; seeds differ by it."""
    policy_file: PathText
    """Absolute; inside run_dir/policy."""
    epoch: Count
    """A learner publishes under this epoch; higher than that of any learner before it."""
    checkpoint: PathText | None = None
    """A learner starts from this checkpoint; null starts afresh."""
    credit_env_steps: Count = 0
    """See Credit."""
    exploration: dict[str, float] = field(default_factory=dict[str, float])
    replay: list[IndexedChunk] = field(default_factory=list[IndexedChunk])
    """For a learner: chunks already in the index, oldest first."""


class ChunkAccepted(Message, frozen=True):
    """The chunk is counted (or was before): its announcement need not be repeated."""

    chunk: ChunkId
    credit_env_steps: Count
    policy: PolicyRef
    exploration: dict[str, float]
    rejected: ShortText | None = None
    """Why the chunk was not counted; null when it was."""


class Credit(Message, frozen=True):
    """How far a collector may go: the environment steps it may take under this lease, in all. Never falls."""

    lease: Count
    credit_env_steps: Count
    policy: PolicyRef
    exploration: dict[str, float]


class PolicyAvailable(Message, frozen=True):
    """A newer policy is in the policy file. Not resent: every ChunkAccepted says the same."""

    lease: Count
    policy: PolicyRef


class Batches(Message, frozen=True):
    """Answer to a BatchRequest."""

    lease: Count
    request: Count
    rows: NDArray[np.int64]
    """int64 [batches, batch_size]: row ids."""
    weights: NDArray[np.float32]
    """float32 [batches, batch_size]: importance weights, largest 1 per batch."""
    new_chunks: list[IndexedChunk]
    """In row order, gapless from what the learner was told last."""
    first_live_row: Count
    """Rows below are evicted and will not be asked for again."""
    counters: Counters


class SaveCheckpoint(Message, frozen=True):
    """The learner saves ckpt/iteration_<train_iter>.pth.tar with these counters. Answered by CheckpointSaved."""

    lease: Count
    request: Count
    reason: CheckpointReason
    counters: Counters
    best_reward: float | None


class Evaluate(Message, frozen=True):
    """Play episodes `first_episode` … `first_episode + episodes - 1` of an evaluation with exactly this file.
    Answered by EvaluationDone."""

    lease: Count
    evaluation: Count
    checkpoint: PathText
    """Absolute."""
    train_iter: Count
    env_step: Count
    first_episode: Count
    episodes: Annotated[int, Meta(ge=1, le=MOST_EVALUATION_EPISODES)]


class Drain(Message, frozen=True):
    """End the lease: finish the current chunk (a learner: stop training). Answered by Drained."""

    lease: Count
    reason: ShortText


class StopTraining(Message, frozen=True):
    """The learner does no further update under this lease but still saves what it is asked to save."""

    lease: Count


class Leave(Message, frozen=True):
    """The worker's process should end."""

    reason: ShortText
