"""Everything the coordinator, its workers and its clients say to each other: one frozen struct per message.

A file for each direction, and one for what several messages share. Everybody else imports them from here.

Names are requests (`Register`) or events in the past tense (`ChunkAccepted`). A field that holds a numpy array travels
as a frame of its own (see codec.py). A worker that holds a lease works for one experiment; every message about that
work names the lease, so that a message of an older lease can be told apart and dropped. Only ChunkAccepted names the
chunk instead.
"""

from __future__ import annotations

from remuda.wire.messages.from_clients import (
    MAX_DIFF_BYTES,
    MAX_LOG_BYTES,
    MOST_LAST_LINES,
    GitState,
    LogRequest,
    Origin,
    Shutdown,
    StatusRequest,
    StopExperiment,
    Submit,
)
from remuda.wire.messages.from_workers import (
    BatchRequest,
    Beat,
    Bye,
    CheckpointSaved,
    ChunkReady,
    ChunkUnreadable,
    CollectorReport,
    Drained,
    EvaluationDone,
    LearnerReport,
    Numbers,
    PolicyPublished,
    Ready,
    Register,
    TimedBlock,
    WorkerFailed,
    WorkerVitals,
)
from remuda.wire.messages.parts import (
    AnyReturns,
    CheckpointReason,
    CheckpointRecord,
    ChunkId,
    ChunkMeta,
    Count,
    Counters,
    EpisodeInfo,
    EpisodeLengths,
    FileName,
    Finite,
    FiniteReturns,
    IndexedChunk,
    LogPlace,
    LongText,
    Message,
    Part,
    PathText,
    Phase,
    PolicyRef,
    Role,
    Seconds,
    ShortText,
    Uuid,
    check_episodes,
    shortened,
)
from remuda.wire.messages.to_anybody import (
    Ack,
    Rejected,
)
from remuda.wire.messages.to_clients import (
    OVER,
    CoordinatorLoad,
    CoordinatorStatus,
    Done,
    ExperimentState,
    ExperimentStatus,
    LogPiece,
    LogText,
    Status,
    Submitted,
    WorkerState,
    WorkerStatus,
)
from remuda.wire.messages.to_workers import (
    Assign,
    Batches,
    BeatHeard,
    ChunkAccepted,
    Credit,
    Drain,
    Evaluate,
    Leave,
    PolicyAvailable,
    Registered,
    SaveCheckpoint,
    StopTraining,
)

__all__ = [
    "MAX_DIFF_BYTES",
    "MAX_LOG_BYTES",
    "MOST_LAST_LINES",
    "OVER",
    "PROTOCOL_VERSION",
    "Ack",
    "AnyMessage",
    "AnyReturns",
    "Assign",
    "BatchRequest",
    "Batches",
    "Beat",
    "BeatHeard",
    "Bye",
    "CheckpointReason",
    "CheckpointRecord",
    "CheckpointSaved",
    "ChunkAccepted",
    "ChunkId",
    "ChunkMeta",
    "ChunkReady",
    "ChunkUnreadable",
    "ClientMessage",
    "CollectorReport",
    "CoordinatorLoad",
    "CoordinatorMessage",
    "CoordinatorStatus",
    "Count",
    "Counters",
    "Credit",
    "Done",
    "Drain",
    "Drained",
    "EpisodeInfo",
    "EpisodeLengths",
    "Evaluate",
    "EvaluationDone",
    "ExperimentState",
    "ExperimentStatus",
    "FileName",
    "Finite",
    "FiniteReturns",
    "GitState",
    "IndexedChunk",
    "LearnerReport",
    "Leave",
    "LogPiece",
    "LogPlace",
    "LogRequest",
    "LogText",
    "LongText",
    "Message",
    "Numbers",
    "Origin",
    "Part",
    "PathText",
    "Phase",
    "PolicyAvailable",
    "PolicyPublished",
    "PolicyRef",
    "Ready",
    "Register",
    "Registered",
    "Rejected",
    "Role",
    "SaveCheckpoint",
    "Seconds",
    "ShortText",
    "Shutdown",
    "Status",
    "StatusRequest",
    "StopExperiment",
    "StopTraining",
    "Submit",
    "Submitted",
    "TimedBlock",
    "Uuid",
    "WorkerFailed",
    "WorkerMessage",
    "WorkerState",
    "WorkerStatus",
    "WorkerVitals",
    "check_episodes",
    "shortened",
]

PROTOCOL_VERSION = 2
"""Raised whenever a message changes its shape; both sides must agree."""

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
    | LearnerReport
    | CheckpointSaved
    | EvaluationDone
    | Drained
    | WorkerFailed
    | Bye
)
CoordinatorMessage = (
    Registered
    | Rejected
    | BeatHeard
    | Assign
    | ChunkAccepted
    | Credit
    | PolicyAvailable
    | Batches
    | SaveCheckpoint
    | Evaluate
    | Drain
    | StopTraining
    | Leave
    | Submitted
    | Status
    | Done
    | LogText
)
ClientMessage = Submit | StatusRequest | StopExperiment | LogRequest | Shutdown
AnyMessage = WorkerMessage | CoordinatorMessage | ClientMessage | Ack
