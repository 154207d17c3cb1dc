"""Types of the fields of messages, and parts of several messages."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import astuple

from remuda.config.section import MOST_COLLECTED, MOST_EVALUATION_EPISODES, MOST_OPPONENTS

Role = Literal["collector", "evaluator", "learner", "reanalyzer", "inference"]
ROLES: tuple[Role, ...] = ("learner", "collector", "evaluator", "reanalyzer", "inference")
Phase = Literal["idle", "preparing", "working", "waiting", "saving"]
"""Activity of a worker, which decides its time limit without progress. `preparing`: building environments or networks,
or loading; `waiting`: for other processes, without a limit."""
CheckpointReason = Literal["initial", "interval", "evaluation", "final", "preemption", "reset"]

LARGEST_COUNT = 2**53
Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
_LARGEST = 1.7976931348623157e308
Finite = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
"""A number: neither nan nor infinite."""
Seconds = Annotated[float, Meta(ge=0.0, le=1e15)]
"""A duration."""
Uuid = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")]
_SHORT_CHARACTERS = 1_000
ShortText = Annotated[str, Meta(max_length=_SHORT_CHARACTERS)]
LongText = Annotated[str, Meta(max_length=200_000)]
PathText = Annotated[str, Meta(min_length=1, max_length=4_096)]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")]
"""A bare file name, without separators or a leading dot, for a file inside its folder."""
PolicyText = Annotated[str, Meta(pattern=r"^([a-z][a-z0-9_]{0,49})?\Z")]
"""Name of a policy in runs with several; empty in runs with a single policy."""
OfOthers = Meta(max_length=99)
"""An entry for each policy after the first, in the order of names; empty in runs with one policy."""
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""Of a whole file."""


_EPISODES = Meta(max_length=MOST_EVALUATION_EPISODES)
EpisodeLengths = Annotated[list[Count], _EPISODES]
FiniteReturns = Annotated[list[Finite], _EPISODES]
AnyReturns = Annotated[list[float], _EPISODES]
"""Returns, which may be infinite or nan if the environment's rewards are."""
EpisodeInfo = Annotated[dict[ShortText, Annotated[list[Finite], _EPISODES]], Meta(max_length=1_000)]
"""Values of episodes by name: `discounted_return` and names of env.episode_info; an episode may lack a value."""

LARGEST_METRIC = 1e300
"""Largest collected metric: weighted sums of such numbers are finite, too."""
MetricName = Annotated[str, Meta(pattern=r"^[a-z][A-Za-z0-9_]{0,99}\Z")]
"""A name of Declaration.collected."""
MetricValue = Annotated[float, Meta(ge=-LARGEST_METRIC, le=LARGEST_METRIC)]

MOST_BUCKETS = 100
"""Of a histogram."""
MOST_ACTION_DIMENSIONS = 16
"""Most dimensions of continuous actions with a histogram."""
MOST_FILM_BYTES = 512 << 10
"""Of an evaluation."""


def check_episodes(returns: list[float], lengths: list[int], info: dict[str, list[float]]) -> None:
    """Raise ValueError, which makes the message malformed, unless these fit the same episodes."""
    if len(returns) != len(lengths):
        raise ValueError(f"{len(returns)} returns of {len(lengths)} episodes")
    for name, values in info.items():
        if len(values) > len(returns):
            raise ValueError(f"{len(values)} values of {name!r} of {len(returns)} episodes")


def shortened(text: str) -> str:
    """Return the beginning of the text, as a ShortText; a longer text would make the message malformed."""
    return text[:_SHORT_CHARACTERS]


class Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of every message: immutable, tagged with its class name, without unknown fields."""


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a message; never sent alone."""


class Counters(Part, frozen=True):
    """Counters of a run; all other numbers in logs and views are derived from these."""

    env_step: Count = 0
    train_iter: Count = 0
    episode: Count = 0
    policy_version: Count = 0
    wall_s: Seconds = 0.0


class Used(Part, frozen=True):
    """Amounts of use, whole numbers so that sums are exact."""

    worker_us: Count = 0
    """Time of leases, in microseconds."""
    gpu_us: Count = 0
    """Time of leases times GPUs of each."""
    cpu_us: Count = 0
    """Processor time reported under leases."""
    env_steps: Count = 0
    """Environment steps in counted chunks."""
    updates: Count = 0
    """Computed gradient updates. Updates computed again after the death of a learner are also use."""
    payload_bytes: Count = 0
    """Size of counted chunks."""

    def __add__(self, other: Used) -> Used:
        return Used(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Used) -> Used:
        return Used(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))


class Quota(Part, frozen=True):
    """Weight and limits of an account: of a user (the name of a key) or of a project."""

    account: Annotated[str, Meta(pattern=r"^(user|project)/[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
    weight: Annotated[float, Meta(ge=1e-6, le=1e6)] = 1.0
    """An account with weight 2 gets twice the share of the herd of an account with weight 1."""
    workers: Count | None = None
    """Most workers at the same time."""
    worker_hours: Annotated[float, Meta(ge=0.0, le=1e12)] | None = None
    """Most worker-hours in `days`."""
    env_steps: Count | None = None
    """Most environment steps in `days`."""
    days: Annotated[int, Meta(ge=1, le=366)] = 7
    """Length of the period, which ends with the present hour."""

    @property
    def is_empty(self) -> bool:
        """True for the weight 1 and no limit."""
        return self.weight == 1.0 and self.workers is None and self.worker_hours is None and self.env_steps is None


class LedgerCounts(Part, frozen=True):
    """Counts of a run's chunks by fate, over all restarts of its coordinator."""

    accepted: Count = 0
    """Counted chunks: the sum of their environment steps is `env_step`."""
    repeated: Count = 0
    """Announcements of chunks that had been counted before."""
    refused: Count = 0
    """Announced but uncounted chunks, such as a chunk larger than the buffer."""
    refused_env_steps: Count = 0
    """Environment steps in these."""
    lost_collectors: Count = 0
    """Collectors that ended without handing in their work: at most two lost chunks per collector."""


class PolicyRef(Part, frozen=True, order=True):
    """Identity of a policy: the learner's epoch first, then the version published in this epoch."""

    epoch: Count = 0
    version: Count = 0
    train_iter: Count = 0


class InferenceServer(Part, frozen=True):
    """An inference worker under a lease, for the collectors of its run."""

    address: Annotated[str, Meta(pattern=r"^tcp://[0-9A-Za-z.:\[\]-]{1,200}\Z")]
    key: Sha256
    """Its public key, as hexadecimal digits."""


class Acting(Part, frozen=True):
    """Newest version and exploration of one of several policies."""

    policy: PolicyRef
    """Newest version."""
    exploration: dict[str, float]


class Task(Part, frozen=True):
    """Task of a run: the present environments; see env.schedule."""

    number: Count = 0
    """0 is the run's section `env` itself; rises by 1 with every task."""
    kwargs_json: LongText = ""
    """JSON: arguments to replace or extend `env.kwargs`; empty for none."""


class CheckpointFile(Part, frozen=True):
    """A checkpoint of one of several policies."""

    file: FileName
    """Name inside its folder in ckpt/."""
    sha256: Sha256


OlderCheckpoints = Annotated[list[CheckpointFile], Meta(max_length=MOST_OPPONENTS)]
"""Older checkpoints of a policy in self-play, oldest first."""


MatchWeights = Annotated[list[Annotated[float, Meta(ge=0.0, le=1.0)]], Meta(max_length=200)]
"""Shares of the episodes of a policy by opponent, in a league."""


class ChunkId(Part, frozen=True, order=True):
    """Unique chunk id: worker, incarnation, and sequence number (from 0, without gaps)."""

    worker: Uuid
    incarnation: Count
    sequence: Count


class MetricMean(Part, frozen=True):
    """Mean of a collected metric over a chunk."""

    mean: MetricValue
    steps: Annotated[int, Meta(ge=1, le=2**53)]
    """Environment steps in the mean: the steps of the chunk with a value."""


Metrics = Annotated[dict[MetricName, MetricMean], Meta(max_length=MOST_COLLECTED)]


class ChunkMeta(Part, frozen=True):
    """Metadata of a chunk. Also stored in the payload's header."""

    chunk: ChunkId
    file: FileName
    """Name inside the run folder's data/."""
    rows: Count
    """Training rows in the payload; differs from env_steps, since an n-step row ends later than it starts."""
    env_steps: Count
    """Environment steps taken for this chunk, without resets."""
    payload_bytes: Count
    checksum: Count
    """Over the columns' names and bytes, in sorted order of name; see storage/tensor_file.py."""
    policy: PolicyRef
    """The oldest policy that acted in the chunk."""
    collect_s: Seconds
    episode_returns: FiniteReturns = field(default_factory=list[float])
    """Undiscounted returns of episodes that ended in the chunk, in order of the ends."""
    episode_lengths: EpisodeLengths = field(default_factory=list[int])
    """Lengths of the same episodes."""
    episode_info: EpisodeInfo = field(default_factory=dict[str, list[float]])
    """More values of these episodes."""
    metrics: Metrics = field(default_factory=dict[str, MetricMean])
    """Means over the steps of the chunk, under the names of Declaration.collected."""
    task: Count = 0
    """Number of the task of the chunk; see Task."""

    def __post_init__(self) -> None:
        """Raise ValueError for contradictory numbers."""
        check_episodes(self.episode_returns, self.episode_lengths, self.episode_info)


class IndexedChunk(Part, frozen=True):
    """A chunk new to the learner, and the ids of the rows."""

    first_row: Count
    meta: ChunkMeta


class Grant(Part, frozen=True):
    """Files that a worker without the runs folder may bring and fetch under its lease. The worker shows the grant to
    the stream server."""

    run_dir: PathText
    """The run folder, on the coordinator's host."""
    role: Role
    worker: Uuid
    incarnation: Count
    policy_file: FileName
    """Name inside the run folder's policy/."""
    seal: ShortText = ""
    """Proof of the coordinator's authorship: 64 hexadecimal digits."""


class ReanalysisId(Part, frozen=True, order=True):
    """Unique id of a reanalysis: the reanalyzer, its incarnation, and sequence number (from 0, without gaps)."""

    worker: Uuid
    incarnation: Count
    sequence: Count


class Reanalysis(Part, frozen=True):
    """Recomputed columns of a chunk, in a separate file. Also stored in the file's header."""

    id: ReanalysisId
    file: FileName
    """Name inside the run folder's data/."""
    chunk: ChunkId
    """Chunk of the rows; the reanalysis has all rows of the chunk."""
    first_row: Count
    """Id of the first row."""
    rows: Count
    target: PolicyRef
    """Target network behind the columns."""
    payload_bytes: Count
    checksum: Count
    """As in a chunk."""
    compute_s: Seconds = 0.0
    """Seconds of the computation."""


class IndexedReanalysis(Part, frozen=True):
    """A reanalysis that is new to the learner."""

    number: Count
    """Number from 1, in the order in which the coordinator accepts reanalyses."""
    meta: Reanalysis


class CheckpointRecord(Part, frozen=True):
    """A checkpoint in index.json."""

    train_iter: Count
    env_step: Count
    wall_s: Seconds
    reward: Finite | None
    """Mean evaluation return of exactly this file; null until evaluated."""
    file: FileName
    sha256: Sha256
    created: ShortText
    """Local time, ISO 8601 with offset."""
    episode: Count = 0
    policy: PolicyRef = PolicyRef()
    """The last policy published before the checkpoint; a resumed learner continues with a higher epoch."""
    task: ShortText = ""
    """Task of `reward`; rewards of two tasks cannot be compared. Empty: unknown."""

    @property
    def counters(self) -> Counters:
        """The run's counters at the save."""
        return Counters(self.env_step, self.train_iter, self.episode, self.policy.version, self.wall_s)


class Histogram(Part, frozen=True):
    """Numbers of values in neighbouring buckets."""

    left: Finite
    """Left edge of the first bucket."""
    rights: Annotated[list[Finite], Meta(max_length=MOST_BUCKETS)]
    """Right edge of each bucket, ascending; also the left edge of the next bucket."""
    counts: Annotated[list[Count], Meta(max_length=MOST_BUCKETS)]
    """Values in every bucket."""
    total: Finite = 0.0
    """Sum of the values."""
    total_squares: Finite = 0.0
    """Sum of their squares."""

    def __post_init__(self) -> None:
        """Raise ValueError where buckets lack an edge or a count."""
        if len(self.rights) != len(self.counts):
            raise ValueError(f"{len(self.rights)} right edges of {len(self.counts)} buckets")


class Film(Part, frozen=True):
    """An animated GIF."""

    gif: Annotated[bytes, Meta(max_length=MOST_FILM_BYTES)]
    height: Count
    """Pixels; as the next."""
    width: Count


class LogPosition(Part, frozen=True):
    """Position up to which a log has been read. The inode reveals a replaced file."""

    file: PathText
    """Relative to the run's log/."""
    inode: Count = 0
    offset: Count = 0


# --- messages of both directions ---


class Rejected(Message, frozen=True):
    """A refusal with its reason. `unknown` asks a worker to register (again); every other code is
    final for the worker."""

    code: Literal[
        "protocol",
        "forbidden",
        "superseded",
        "dismissed",
        "malformed",
        "unknown",
        "invalid",
        "exists",
        "closing",
        "busy",
    ]
    """forbidden: the right of the peer's key does not include the message, or the key is unknown."""
    reason: LongText


class Ack(Message, frozen=True):
    """The message was received and has no immediate answer. An Ack is never acknowledged."""
