"""Messages of the coordinator to its workers: registration, leases and their ends, and data for the work."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta, field
from numpy.typing import NDArray

from remuda.config.section import MOST_EVALUATION_EPISODES
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
    InferenceServer,
    LongText,
    MatchWeights,
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
    """Confirmation of the registration: the worker begins to send beats and messages of its role."""

    coordinator: Uuid
    """The coordinator's id, as in its connection file."""
    beat_interval_s: float
    lease: Count = 0
    """Lease of the worker's Register."""
    goes_on: bool = False
    """True if the lease continues; else the worker ends this lease (but no newer lease)."""
    runs_dir: Annotated[str, Meta(max_length=4_096)] = ""
    """The runs folder, on the coordinator's host: the beginning of names of run folders. No worker opens this path."""
    token: ShortText = ""
    """The sha256 of the file `.seen_<coordinator>` in the runs folder: who reads the same file sees the same folder."""
    token_there: bool = False
    """True if the token file exists already; else it comes with the first run."""
    stream_port: Count = 0
    """Port of the stream server at the coordinator's host, for workers without the runs folder."""


class BeatHeard(Message, frozen=True):
    """The coordinator is alive. `next_s` is the time until the next beat, which is longer in a large herd."""

    next_s: float = 1.0


class Assign(Message, frozen=True):
    """A lease: work for this experiment until Drain. Answered by Ready when the work can start."""

    lease: Count
    experiment: Uuid
    name: ShortText
    run_dir: PathText
    """Absolute, on the coordinator's host. Workers open no path from a message: they look for the same name in the runs
    folder that they see."""
    config_json: LongText
    index: Count
    """Number of this collector (or evaluator) in the experiment: 0, 1, 2 …; a source of seeds."""
    generation: Count
    """Number of earlier leases of this role and index, also before resumes; a source of seeds, too."""
    policy_file: FileName
    """Name inside the run folder's policy/."""
    epoch: Count
    """Epoch of a learner; higher than the epoch of any earlier learner."""
    checkpoint: CheckpointFile | None = None
    """Checkpoint in the run folder's ckpt/ from which a learner starts; null starts from the beginning."""
    credit_env_steps: Count = 0
    """See Credit."""
    exploration: dict[str, float] = field(default_factory=dict[str, float])
    replay: list[IndexedChunk] = field(default_factory=list[IndexedChunk])
    """For a learner: chunks already in the index, oldest first."""
    reanalyses: list[IndexedReanalysis] = field(default_factory=list[IndexedReanalysis])
    """For a learner: the newest reanalysis of each of these chunks, in the order of numbers."""
    policy: PolicyText = ""
    """For a learner of a run with several policies: the name of its policy."""
    policies: Annotated[dict[PolicyText, FileName], Meta(max_length=100)] = field(default_factory=dict[str, str])
    """For all roles but the learner in such a run: the policy file of each policy, by name."""
    others: Annotated[list[Acting], OfOthers] = field(default_factory=list[Acting])
    """Newest versions of the other policies."""
    grant: Grant | None = None
    """For a worker without the runs folder."""
    callbacks: CallbackStates = field(default_factory=dict[str, bytes])
    """For a learner: the states in which its callbacks continue."""
    changes: SettingChanges = field(default_factory=dict[str, list[tuple[int, int | float]]])
    """See ChangeSettings."""
    task: Task = Task()
    """For a collector: the first task."""


class ChunkAccepted(Message, frozen=True):
    """The chunk is counted (or was counted before) and needs no further announcement."""

    chunk: ChunkId
    credit_env_steps: Count
    policy: PolicyRef
    exploration: dict[str, float]
    rejected: ShortText | None = None
    """Reason why the chunk was not counted; null for a counted chunk."""
    others: Annotated[list[Acting], OfOthers] = field(default_factory=list[Acting])
    """Newest versions of the other policies."""
    task: Task = Task()
    """A collector at an earlier task leaves its episodes, and begins episodes of this task."""


class Credit(Message, frozen=True):
    """Limit of a collector: the total environment steps under this lease. Never falls."""

    lease: Count
    credit_env_steps: Count
    policy: PolicyRef
    exploration: dict[str, float]
    others: Annotated[list[Acting], OfOthers] = field(default_factory=list[Acting])
    """Newest versions of the other policies."""
    task: Task = Task()
    """A collector at an earlier task leaves its episodes, and begins episodes of this task."""


class PolicyAvailable(Message, frozen=True):
    """A newer policy is in the policy file. Not resent, since every ChunkAccepted names the newest policy, too."""

    lease: Count
    policy: PolicyRef
    policy_index: Count = 0
    """Index of the policy, in the order of names; for several policies."""


class Opponents(Message, frozen=True):
    """Checkpoints that play against newer policies in self-play, in episodes that a collector begins from now on."""

    lease: Count
    pool: Annotated[list[OlderCheckpoints], Meta(max_length=100)]
    """Checkpoints of each policy, in the order of names, oldest first."""
    weights: Annotated[list[MatchWeights], Meta(max_length=100)] = field(default_factory=list[MatchWeights])
    """In a league, of each learning policy: weights of its opponents: the newest version of each policy, then the pool.
    """


class InferenceServers(Message, frozen=True):
    """The inference workers of the run, for collectors: all that listen now."""

    lease: Count
    servers: Annotated[list[InferenceServer], Meta(max_length=1_000)]


class InferenceCallers(Message, frozen=True):
    """Public keys of the collectors of the run, for inference workers."""

    lease: Count
    keys: Annotated[list[Sha256], Meta(max_length=100_000)]
    """May ask from now on."""
    gone: Annotated[list[Sha256], Meta(max_length=100_000)] = field(default_factory=list[Sha256])
    """May no longer ask."""
    whole: bool = False
    """Nobody else may ask."""


class Batches(Message, frozen=True):
    """Answer to a BatchRequest."""

    lease: Count
    request: Count
    rows: NDArray[np.int64]
    """int64 [batches, batch_size]: row ids."""
    weights: NDArray[np.float32]
    """float32 [batches, batch_size]: importance weights, largest 1 per batch."""
    new_chunks: list[IndexedChunk]
    """In the order of their rows, without gaps after the last answer."""
    first_live_row: Count
    """Rows below this id are evicted and will not be drawn again."""
    counters: Counters
    reanalyses: list[IndexedReanalysis] = field(default_factory=list[IndexedReanalysis])
    """Reanalyses since the last answer, in the order of numbers. A file may be gone already if a newer reanalysis
    replaces it, or if its rows are evicted."""


class SaveCheckpoint(Message, frozen=True):
    """The learner saves ckpt/iteration_<train_iter>.pth.tar with these counters. Answered by CheckpointSaved. In a
    preemption the learner does no further update."""

    lease: Count
    request: Count
    reason: CheckpointReason
    counters: Counters
    best_reward: float | None
    weights: CheckpointFile | None = None
    """Before, the learner begins again with the weights of this checkpoint of its policy."""


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
    policy_index: Count = 0
    """Index of the evaluated policy, in the order of names; for several policies."""
    others: Annotated[list[CheckpointFile], OfOthers] = field(default_factory=list[CheckpointFile])
    """Checkpoints of the other policies, in the order of names."""
    older: Annotated[list[OlderCheckpoints], Meta(max_length=100)] = field(default_factory=list[list[CheckpointFile]])
    """In self-play: the older checkpoints of each policy, in the order of policy names, oldest first. The same number
    of episodes is played against these."""
    task: Task = Task()
    """The played task."""


class Reanalyze(Message, frozen=True):
    """Compute columns of this chunk again, with the target network or a newer network. Answered by Reanalyzed or
    NotReanalyzed."""

    lease: Count
    request: Count
    """Counts up from 1 under a lease."""
    chunk: IndexedChunk
    target: PolicyRef
    """The newest published target network."""
    policy_index: Count = 0
    """Index of the policy, in the order of names; each policy counts its requests."""


class CallCallbacks(Message, frozen=True):
    """Call the user's callbacks about this event. Answered by CallbacksDecided, before the next event is sent. Repeated
    over restarts until then."""

    lease: Count
    number: Count
    """Counts up from 1 over the whole run, without gaps."""
    event: CallbackEvent
    env_step: Count
    """Environment steps counted now; the event may be older."""


class ChangeSettings(Message, frozen=True):
    """New values of these settings, in place of the values in the lease's config."""

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
    | InferenceServers
    | InferenceCallers
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
