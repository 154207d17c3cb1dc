"""Messages of the coordinator to its workers: registration, leases and their ends, and what the work needs."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta, field
from numpy.typing import NDArray

from remuda.config.numbers import MOST_EVALUATION_EPISODES
from remuda.wire.messages.callbacks import CallbackEvent, CallbackStates, SettingChanges
from remuda.wire.messages.parts import (
    Acting,
    CheckpointFile,
    CheckpointReason,
    ChunkId,
    Count,
    Counters,
    FileName,
    Grant,
    IndexedChunk,
    IndexedReanalysis,
    LongText,
    Message,
    OfOthers,
    OlderCheckpoints,
    PathText,
    PolicyRef,
    PolicyText,
    Sha256,
    ShortText,
    Task,
    Uuid,
)


class Registered(Message, frozen=True):
    """The worker is registered. It begins to send beats, and its other messages may be sent."""

    coordinator: Uuid
    """This coordinator's id, as in its connection file."""
    beat_interval_s: float
    lease: Count = 0
    """The lease that the worker named in Register."""
    goes_on: bool = False
    """Whether that lease continues; if not, the worker ends it (but not one that it got since)."""
    runs_dir: Annotated[str, Meta(max_length=4_096)] = ""
    """The runs folder, on the coordinator's host. No worker opens this path: it is what names of run folders begin
    with."""
    token: ShortText = ""
    """The sha256 of the file `.seen_<coordinator>` in the runs folder: who reads the same file sees the same folder."""
    token_there: bool = False
    """Whether that file is there already; if not, it comes with the first run."""
    stream_port: Count = 0
    """Where the files of runs travel to and from workers that do not see that folder; at the coordinator's host."""


class BeatHeard(Message, frozen=True):
    """The coordinator is alive. `next_s` is the time until the next beat, which is longer in a large herd."""

    next_s: float = 1.0


class Assign(Message, frozen=True):
    """A lease: work for this experiment until told to drain. Answered by Ready when the work can start."""

    lease: Count
    experiment: Uuid
    name: ShortText
    run_dir: PathText
    """Absolute, on the coordinator's host. Workers open no path that comes by message: they look for the same place in
    the runs folder that they see."""
    config_json: LongText
    index: Count
    """Number of this collector (or evaluator) in the experiment: 0, 1, 2 …; seeds are derived from it."""
    generation: Count
    """Number of leases of this role and index before this one, also before resumes; seeds are derived from it, too."""
    policy_file: FileName
    """Name inside the run folder's policy/."""
    epoch: Count
    """Epoch of a learner; higher than that of any learner before it."""
    checkpoint: FileName | None = None
    """Name inside the run folder's ckpt/ of the checkpoint from which a learner starts; null starts from the
    beginning."""
    credit_env_steps: Count = 0
    """See Credit."""
    exploration: dict[str, float] = field(default_factory=dict[str, float])
    replay: list[IndexedChunk] = field(default_factory=list[IndexedChunk])
    """For a learner: chunks already in the index, oldest first."""
    reanalyses: list[IndexedReanalysis] = field(default_factory=list[IndexedReanalysis])
    """For a learner: the newest reanalysis of each of these chunks that has one, in the order of their numbers."""
    policy: PolicyText = ""
    """For a learner of a run with several policies: which one is its own."""
    policies: Annotated[dict[PolicyText, FileName], Meta(max_length=100)] = field(default_factory=dict[str, str])
    """For everybody else in such a run: the policy file of each policy, by name."""
    others: Annotated[list[Acting], OfOthers] = field(default_factory=list[Acting])
    """What the other policies act by."""
    grant: Grant | None = None
    """For a worker that does not see the runs folder."""
    callbacks: CallbackStates = field(default_factory=dict[str, bytes])
    """For a learner: the states in which its callbacks continue."""
    changes: SettingChanges = field(default_factory=dict[str, list[tuple[int, int | float]]])
    """See ChangeSettings."""
    task: Task = Task()
    """For a collector: the task that it begins with."""


class ChunkAccepted(Message, frozen=True):
    """The chunk is counted (or was counted before); it need not be announced again."""

    chunk: ChunkId
    credit_env_steps: Count
    policy: PolicyRef
    exploration: dict[str, float]
    rejected: ShortText | None = None
    """Why the chunk was not counted; null if it was."""
    others: Annotated[list[Acting], OfOthers] = field(default_factory=list[Acting])
    """What the other policies act by."""
    task: Task = Task()
    """A collector that is at an earlier one leaves its episodes, and begins others at this task."""


class Credit(Message, frozen=True):
    """How far a collector may go: the total environment steps that it may take under this lease. Never falls."""

    lease: Count
    credit_env_steps: Count
    policy: PolicyRef
    exploration: dict[str, float]
    others: Annotated[list[Acting], OfOthers] = field(default_factory=list[Acting])
    """What the other policies act by."""
    task: Task = Task()
    """A collector that is at an earlier one leaves its episodes, and begins others at this task."""


class PolicyAvailable(Message, frozen=True):
    """A newer policy is in the policy file. Not resent, since every ChunkAccepted names the newest policy, too."""

    lease: Count
    policy: PolicyRef
    place: Count = 0
    """Of several policies, which one it is, in the order of their names."""


class Opponents(Message, frozen=True):
    """In self-play: the newest checkpoints of a policy, which play against newer policies in the episodes that a
    collector begins from now on."""

    lease: Count
    checkpoints: OlderCheckpoints
    """Oldest first."""
    place: Count = 0
    """Of several policies, which one they are of, in the order of their names."""


class Batches(Message, frozen=True):
    """Answer to a BatchRequest."""

    lease: Count
    request: Count
    rows: NDArray[np.int64]
    """int64 [batches, batch_size]: row ids."""
    weights: NDArray[np.float32]
    """float32 [batches, batch_size]: importance weights, largest 1 per batch."""
    new_chunks: list[IndexedChunk]
    """In the order of their rows, without gaps after those in the last answer."""
    first_live_row: Count
    """Rows below this id are evicted and will not be drawn again."""
    counters: Counters
    reanalyses: list[IndexedReanalysis] = field(default_factory=list[IndexedReanalysis])
    """Reanalyses since the last answer, in the order of their numbers. The file of one that a newer one replaces, or
    whose rows are evicted, may be gone already."""


class SaveCheckpoint(Message, frozen=True):
    """The learner saves ckpt/iteration_<train_iter>.pth.tar with these counters. Answered by CheckpointSaved."""

    lease: Count
    request: Count
    reason: CheckpointReason
    counters: Counters
    best_reward: float | None


class Evaluate(Message, frozen=True):
    """Play episodes `first_episode` … `first_episode + episodes - 1` of an evaluation with exactly this file.
    Answered by EvaluationDone; EvaluationFilmed follows if the first episode is to be filmed."""

    lease: Count
    evaluation: Count
    checkpoint: FileName
    """Name inside the run folder's ckpt/."""
    sha256: Sha256
    train_iter: Count
    env_step: Count
    first_episode: Count
    episodes: Annotated[int, Meta(ge=1, le=MOST_EVALUATION_EPISODES)]
    place: Count = 0
    """Of several policies, which one is evaluated, in the order of their names."""
    others: Annotated[list[CheckpointFile], OfOthers] = field(default_factory=list[CheckpointFile])
    """What the other policies play with, in the order of their names."""
    older: Annotated[list[OlderCheckpoints], Meta(max_length=100)] = field(default_factory=list[list[CheckpointFile]])
    """In self-play: of each policy, in the order of their names, the checkpoints before the one that plays here, oldest
    first. As many episodes are played against them, too."""
    task: Task = Task()
    """The task that is played."""


class Reanalyze(Message, frozen=True):
    """Compute columns of this chunk again, with the target network or a newer one. Answered by Reanalyzed or
    NotReanalyzed."""

    lease: Count
    request: Count
    """Counts up from 1 under a lease."""
    chunk: IndexedChunk
    target: PolicyRef
    """The newest target network that is published."""


class CallCallbacks(Message, frozen=True):
    """Tell the user's callbacks of this event. Answered by CallbacksDecided, before the next one is sent. Repeated over
    restarts until then."""

    lease: Count
    number: Count
    """Counts up from 1 over the whole run, without gaps."""
    event: CallbackEvent
    env_step: Count
    """Environment steps counted now; the event may be older."""


class ChangeSettings(Message, frozen=True):
    """From now on these settings have other values than the config of the lease says."""

    lease: Count
    changes: SettingChanges


class Drain(Message, frozen=True):
    """End the lease: finish the current chunk (a learner: stop training). Answered by Drained."""

    lease: Count
    reason: ShortText


class StopTraining(Message, frozen=True):
    """The learner does no further update under this lease, but still saves checkpoints when asked to."""

    lease: Count


class Leave(Message, frozen=True):
    """The worker's process should end."""

    reason: ShortText


ToWorker = (
    Registered
    | BeatHeard
    | Assign
    | ChunkAccepted
    | Credit
    | PolicyAvailable
    | Opponents
    | Batches
    | SaveCheckpoint
    | Evaluate
    | Reanalyze
    | CallCallbacks
    | ChangeSettings
    | Drain
    | StopTraining
    | Leave
)
