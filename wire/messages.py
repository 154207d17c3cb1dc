"""Everything the coordinator, its workers and its clients say to each other: one frozen struct per message.

Names are requests (`Register`) or events in the past tense (`ChunkAccepted`). A field that holds a numpy array travels
as a frame of its own (see codec.py). A worker that holds a lease works for one experiment; every message about that
work names the lease, so that a message of an older lease can be told apart and dropped.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray

PROTOCOL_VERSION = 1
"""Raised whenever a message changes its shape; both sides must agree."""

Role = Literal["collector", "evaluator", "learner"]
WorkerState = Literal["idle", "busy", "stuck", "lost", "draining"]
ExperimentState = Literal["queued", "starting", "running", "stopping", "finished", "stopped", "failed"]
Origin = Literal["file", "command line", "default"]
"""Where a setting came from."""
CheckpointReason = Literal["initial", "interval", "evaluation", "final", "interrupt"]

Count = Annotated[int, Meta(ge=0, le=2**53)]
Uuid = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
ShortText = Annotated[str, Meta(max_length=1_000)]
LongText = Annotated[str, Meta(max_length=200_000)]
PathText = Annotated[str, Meta(min_length=1, max_length=4_096)]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
"""A bare file name: no separator, no leading dot, so it cannot leave the folder it belongs to."""


class Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """What every message is: immutable, tagged with its class name, closed to unknown fields."""


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a message; never sent alone."""


# --- parts ----------------------------------------------------------------------------------------------------------


class Counters(Part, frozen=True):
    """The one set of counters; every other number a view shows is derived from these."""

    env_step: Count = 0
    train_iter: Count = 0
    episode: Count = 0
    policy_version: Count = 0
    wall_s: float = 0.0


class PolicyRef(Part, frozen=True, order=True):
    """Which policy: the learner's epoch first, then the version it published under that epoch."""

    epoch: Count = 0
    version: Count = 0
    train_iter: Count = 0


class ChunkId(Part, frozen=True, order=True):
    """Names a chunk for ever: whose, in which of its lives, the how-manieth (from 0, without holes)."""

    worker: Uuid
    incarnation: Count
    sequence: Count


class ChunkMeta(Part, frozen=True):
    """All that is known of a chunk without opening its payload. Also stored in the payload's header."""

    chunk: ChunkId
    file: FileName
    """Name inside the run folder's data/."""
    rows: Count
    """Training rows in the payload; differs from env_steps, since an n-step row ends later than it starts."""
    env_steps: Count
    """Environment steps really taken for this chunk (resets not counted)."""
    payload_bytes: Count
    checksum: Count
    """Over the columns' names and bytes, in sorted order of name; see storage/tensor_file.py."""
    policy: PolicyRef
    """The oldest policy that acted in it."""
    collect_s: float
    episode_returns: list[float] = field(default_factory=list[float])
    """Undiscounted returns of the episodes that ended in it, in order of ending."""
    episode_lengths: list[Count] = field(default_factory=list[int])
    episode_info: dict[ShortText, list[float]] = field(default_factory=dict[str, list[float]])
    """What these episodes reported besides (see the setting env.episode_info), finite; not every one need have."""


class IndexedChunk(Part, frozen=True):
    """A chunk the learner has not heard of, and the row ids that its rows were given."""

    first_row: Count
    meta: ChunkMeta


class CheckpointRecord(Part, frozen=True):
    """One checkpoint as index.json lists it."""

    train_iter: Count
    env_step: Count
    wall_s: float
    reward: float | None
    """Mean evaluation return of exactly this file; null until evaluated."""
    file: FileName
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
    created: ShortText
    """Local time, ISO 8601 with offset."""
    episode: Count = 0
    policy: PolicyRef = PolicyRef()
    """Published last before it; a resumed learner goes on under a higher epoch."""


# --- worker to coordinator ------------------------------------------------------------------------------------------


class Register(Message, frozen=True):
    """First word of a worker's life. Answered by Registered or Rejected."""

    worker: Uuid
    incarnation: Count
    role: Role
    host: ShortText
    pid: Count
    protocol: Count
    version: ShortText
    """Version of Remuda, for people; only `protocol` must agree."""
    cpus: Count = 1
    memory_bytes: Count = 0
    gpus: Count = 0
    lease: Count = 0
    """The lease it holds already: not 0 where it has outlived a coordinator, or lost touch with it for a while."""


class Beat(Message, frozen=True):
    """Sent every beat interval by a thread of its own, so a worker whose beats stop is dead or cut off, and one whose
    `progress` stops while it holds a lease is stuck. Answered by BeatHeard. Not resent."""

    progress: Count
    """Grows with every bit of work done: environment steps, updates, evaluated steps."""
    activity: ShortText
    """What the worker is doing, for people: `collecting`, `waiting for credit`, `training`."""
    lease: Count = 0
    """The lease it believes it holds; 0 none."""
    rss_bytes: Count = 0
    cpu_s: float = 0.0


class Ready(Message, frozen=True):
    """The lease's work can start: environments built, networks made (a learner: policy file published)."""

    lease: Count


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
    duration_s: float
    reward_mean: float
    """nan where no episode finished."""
    reward_std: float
    statistics: dict[ShortText, float] = field(default_factory=dict[str, float])
    """More of the episodes' returns, lengths and what they reported: `reward_median`, `length_max`; nan likewise."""


class TimedBlock(Part, frozen=True):
    """What a process spends time on."""

    path: ShortText
    """`collect/act` is the block `act` inside `collect`."""
    count: Count
    """How often it was entered."""
    total_s: float


class WorkerVitals(Message, frozen=True):
    """How a lease's time has been spent so far: totals, which replace those sent before. Sent every few seconds, and
    when the lease ends."""

    lease: Count
    elapsed_s: float
    """Since the lease began."""
    cpu_s: float
    """Processor time since then, of all threads."""
    rss_bytes: Count
    blocks: list[TimedBlock]


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
    """int64 [n]: rows whose priority is known anew."""
    priorities: NDArray[np.float32]
    """float32 [n]: their absolute errors, before exponent and offset."""


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
    metrics: dict[str, float]


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
    returns: list[float]
    lengths: list[Count]
    duration_s: float
    info: dict[ShortText, list[float]] = field(default_factory=dict[str, list[float]])
    """As ChunkMeta.episode_info."""


class Drained(Message, frozen=True):
    """The lease has ended cleanly: nothing in hand, nothing unannounced. The worker is idle again."""

    lease: Count


class WorkerFailed(Message, frozen=True):
    """An exception ended the lease's work. The worker exits after this; its nanny starts the next incarnation."""

    lease: Count
    error: ShortText
    traceback: LongText


class Bye(Message, frozen=True):
    """The worker leaves for good: told to, or asked by its operating system."""

    reason: ShortText


# --- coordinator to worker ------------------------------------------------------------------------------------------


class Registered(Message, frozen=True):
    """Welcome. `run` is this coordinator's own id, so a worker notices another one on the same address."""

    coordinator: Uuid
    beat_interval_s: float
    death_timeout_s: float
    """A worker that hears nothing from its coordinator for so long exits by itself."""
    lease: Count = 0
    """The lease that the worker said it holds."""
    goes_on: bool = False
    """It still does; else it lets go of that lease (not of one that it was given since)."""


class Rejected(Message, frozen=True):
    """No, and why. `unknown` to a worker means that it must register (again); every other code is final for it."""

    code: Literal["protocol", "superseded", "dismissed", "malformed", "unknown", "invalid", "exists", "closing"]
    reason: LongText


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
    episodes: Annotated[int, Meta(ge=1, le=1_000_000)]


class Drain(Message, frozen=True):
    """End the lease: finish the chunk in hand (a learner: stop training). Answered by Drained."""

    lease: Count
    reason: ShortText


class StopTraining(Message, frozen=True):
    """The learner does no further update under this lease but still saves what it is asked to save."""

    lease: Count


class Leave(Message, frozen=True):
    """The worker's process should end."""

    reason: ShortText


# --- clients --------------------------------------------------------------------------------------------------------


class Submit(Message, frozen=True):
    """A new experiment. Answered by Submitted or Rejected."""

    name: ShortText
    config_json: LongText
    run_dir: PathText
    """Absolute, or relative to the coordinator's runs folder."""
    on_exists: Literal["error", "resume", "force", "rename"] = "error"
    priority: int = 0
    submitted_from: PathText | None = None
    """Working directory of the client; its git state is recorded."""
    provenance: dict[str, Origin] = field(default_factory=dict[str, Origin])
    """Where each setting came from, by dotted key."""
    experiment: Uuid | None = None
    """The id it shall have. With one, a submission that is repeated (to a coordinator that was started again, say) is
    the same experiment."""


class Submitted(Message, frozen=True):
    """The experiment is queued (or already starting)."""

    experiment: Uuid
    run_dir: PathText


class StatusRequest(Message, frozen=True):
    """Answered by Status."""

    experiment: ShortText | None = None
    """Id, unique prefix of an id, or name; null for all."""


class StopExperiment(Message, frozen=True):
    """Answered by Done or Rejected."""

    experiment: ShortText
    now: bool = False
    """Skip the final evaluation."""


class LogPlace(Part, frozen=True):
    """How far a log has been read."""

    file: PathText
    """Relative to the run's log/."""
    inode: Count = 0
    """Tells a file that was put in place of another."""
    offset: Count = 0


class LogRequest(Message, frozen=True):
    """Some lines of an experiment's logs. Answered by LogText or Rejected."""

    experiment: ShortText
    source: ShortText = "commander"
    """commander, learner, collector …, or the beginning of a worker's UUID."""
    last_lines: Count | None = None
    """Of logs that `places` does not name: begin so many lines before their ends; null begins at their starts."""
    places: list[LogPlace] = field(default_factory=list[LogPlace])
    """Where the last answer ended."""


class LogPiece(Part, frozen=True):
    """Whole lines of one log (or a part of a very long one)."""

    place: LogPlace
    """Where the next piece begins."""
    label: ShortText
    """Whose lines these are, where several files make up a source."""
    text: LongText


class LogText(Message, frozen=True):
    """Answer to LogRequest."""

    pieces: list[LogPiece]
    """One for each file of the source, without text where nothing is new."""
    over: bool
    """The experiment is over and everything was read."""


class Shutdown(Message, frozen=True):
    """Stop every experiment, let every worker go, end the coordinator. Answered by Done at once."""

    reason: ShortText = "asked to"


class Done(Message, frozen=True):
    """It was done, or is under way."""


class CoordinatorStatus(Part, frozen=True):
    """The coordinator as `remuda status --json` shows it."""

    id: Uuid
    address: str
    pid: int
    uptime_s: float
    protocol: int


class WorkerStatus(Part, frozen=True):
    """One worker as `remuda status --json` shows it."""

    uuid: Uuid
    incarnation: int
    role: Role
    host: str
    pid: int
    state: WorkerState
    experiment: Uuid | None
    beat_age_s: float
    activity: str
    rss_bytes: int
    cpu_cores: float
    """Processor time per second, child processes not included."""
    work_share: float | None
    """Share of the last seconds in which it did not wait; null where it has no lease, or has not said yet."""


class ExperimentStatus(Part, frozen=True):
    """One experiment as `remuda status --json` shows it."""

    id: Uuid
    name: str
    state: ExperimentState
    reason: str | None
    run_dir: str
    env_step: int
    train_iter: int
    episode: int
    policy_version: int
    wall_s: float
    last_return: float | None
    best_return: float | None
    env_steps_per_s: float
    train_iters_per_s: float
    policy_lag: int
    samples_per_insert: float | None
    waiting_for: str | None
    """Why a queued experiment does not start yet."""


class Status(Message, frozen=True):
    """Answer to StatusRequest."""

    coordinator: CoordinatorStatus
    workers: list[WorkerStatus]
    experiments: list[ExperimentStatus]


# --- both ways ------------------------------------------------------------------------------------------------------


class Ack(Message, frozen=True):
    """Received; there is no (immediate) answer. Never itself acknowledged."""


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
