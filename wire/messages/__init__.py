"""All messages between the coordinator, its workers and its clients: one frozen struct per message.

There is one file per direction, and one for parts that several messages share. Other modules import them from here.

Names are requests (`Register`) or events in the past tense (`ChunkAccepted`). A field with a numpy array is sent as a
separate frame (see codec.py). A worker with a lease works for one experiment; every message about that work names the
lease, so that messages of an older lease are recognised and dropped. Only ChunkAccepted names the chunk instead.
"""

from __future__ import annotations

from remuda.wire.messages.callbacks import (
    MOST_CALLBACKS,
    MOST_CHANGES,
    MOST_NUMBERS,
    MOST_STATE_BYTES,
    CallbackAnswer,
    CallbackEvent,
    CallbackStates,
    Checkpointed,
    Ended,
    Episodes,
    Evaluated,
    Moment,
    SettingChanges,
    SettingValue,
    Started,
    Verdict,
)
from remuda.wire.messages.from_clients import (
    MAX_DIFF_BYTES,
    MAX_LOG_BYTES,
    MOST_LAST_LINES,
    GitState,
    LogRequest,
    Origin,
    Prioritize,
    Priority,
    Shutdown,
    StatusRequest,
    StopExperiment,
    Submit,
)
from remuda.wire.messages.from_workers import (
    BatchRequest,
    Beat,
    Bye,
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
    Numbers,
    PolicyPublished,
    Ready,
    Reanalyzed,
    Register,
    TargetPublished,
    TimedBlock,
    WorkerFailed,
    WorkerVitals,
)
from remuda.wire.messages.parts import (
    LARGEST_METRIC,
    MOST_ACTION_DIMENSIONS,
    MOST_BUCKETS,
    MOST_FILM_BYTES,
    ROLES,
    Acting,
    AnyReturns,
    CheckpointFile,
    CheckpointReason,
    CheckpointRecord,
    ChunkId,
    ChunkMeta,
    Count,
    Counters,
    EpisodeInfo,
    EpisodeLengths,
    FileName,
    Film,
    Finite,
    FiniteReturns,
    Grant,
    Histogram,
    IndexedChunk,
    IndexedReanalysis,
    LedgerCounts,
    LogPlace,
    LongText,
    Message,
    MetricMean,
    MetricName,
    Metrics,
    MetricValue,
    OfOthers,
    OlderCheckpoints,
    Part,
    PathText,
    Phase,
    PolicyRef,
    PolicyText,
    Reanalysis,
    ReanalysisId,
    Role,
    Seconds,
    Sha256,
    ShortText,
    Task,
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
    PolicyStatus,
    RefusalCounts,
    Status,
    Submitted,
    WorkerState,
    WorkerStatus,
)
from remuda.wire.messages.to_workers import (
    Assign,
    Batches,
    BeatHeard,
    CallCallbacks,
    ChangeSettings,
    ChunkAccepted,
    Credit,
    Drain,
    Evaluate,
    Leave,
    Opponents,
    PolicyAvailable,
    Reanalyze,
    Registered,
    SaveCheckpoint,
    StopTraining,
)

__all__ = [
    "LARGEST_METRIC",
    "MAX_DIFF_BYTES",
    "MAX_LOG_BYTES",
    "MOST_ACTION_DIMENSIONS",
    "MOST_BUCKETS",
    "MOST_CALLBACKS",
    "MOST_CHANGES",
    "MOST_FILM_BYTES",
    "MOST_LAST_LINES",
    "MOST_NUMBERS",
    "MOST_STATE_BYTES",
    "OVER",
    "PROTOCOL_VERSION",
    "ROLES",
    "Ack",
    "Acting",
    "AnyMessage",
    "AnyReturns",
    "Assign",
    "BatchRequest",
    "Batches",
    "Beat",
    "BeatHeard",
    "Bye",
    "CallCallbacks",
    "CallbackAnswer",
    "CallbackEvent",
    "CallbackStates",
    "CallbacksDecided",
    "ChangeSettings",
    "CheckpointFile",
    "CheckpointReason",
    "CheckpointRecord",
    "CheckpointSaved",
    "Checkpointed",
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
    "Ended",
    "EpisodeInfo",
    "EpisodeLengths",
    "Episodes",
    "Evaluate",
    "Evaluated",
    "EvaluationDone",
    "EvaluationFilmed",
    "ExperimentState",
    "ExperimentStatus",
    "FileName",
    "Film",
    "Finite",
    "FiniteReturns",
    "GitState",
    "Grant",
    "Histogram",
    "IndexedChunk",
    "IndexedReanalysis",
    "LearnerReport",
    "Leave",
    "LedgerCounts",
    "LogPiece",
    "LogPlace",
    "LogRequest",
    "LogText",
    "LongText",
    "Message",
    "MetricMean",
    "MetricName",
    "MetricValue",
    "Metrics",
    "Moment",
    "NotReanalyzed",
    "Numbers",
    "OfOthers",
    "OlderCheckpoints",
    "Opponents",
    "Origin",
    "Part",
    "PathText",
    "Phase",
    "PolicyAvailable",
    "PolicyPublished",
    "PolicyRef",
    "PolicyStatus",
    "PolicyText",
    "Prioritize",
    "Priority",
    "Ready",
    "Reanalysis",
    "ReanalysisId",
    "Reanalyze",
    "Reanalyzed",
    "RefusalCounts",
    "Register",
    "Registered",
    "Rejected",
    "Role",
    "SaveCheckpoint",
    "Seconds",
    "SettingChanges",
    "SettingValue",
    "Sha256",
    "ShortText",
    "Shutdown",
    "Started",
    "Status",
    "StatusRequest",
    "StopExperiment",
    "StopTraining",
    "Submit",
    "Submitted",
    "TargetPublished",
    "Task",
    "TimedBlock",
    "Uuid",
    "Verdict",
    "WorkerFailed",
    "WorkerMessage",
    "WorkerState",
    "WorkerStatus",
    "WorkerVitals",
    "check_episodes",
    "shortened",
]

PROTOCOL_VERSION = 16
"""Increased whenever a message changes; both sides must have the same version."""

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
    | LearnerReport
    | CheckpointSaved
    | CallbacksDecided
    | EvaluationDone
    | EvaluationFilmed
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
    | Submitted
    | Status
    | Done
    | LogText
)
ClientMessage = Submit | StatusRequest | StopExperiment | Prioritize | LogRequest | Shutdown
AnyMessage = WorkerMessage | CoordinatorMessage | ClientMessage | Ack
