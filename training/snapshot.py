"""Snapshots of an experiment's state: plain structs, journaled before any answer.

Each lasting object of the state machine returns a `snapshot()` and continues with `restore()`. State of each lease,
place or worker is kept in rows instead; `changes()` returns the rows changed since its last call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from remuda.logbook.progress import ProgressRow
from remuda.wire.messages import (
    CallbackEvent,
    CheckpointReason,
    CheckpointRecord,
    Counters,
    Histogram,
    IndexedChunk,
    IndexedReanalysis,
    MetricMean,
    PolicyRef,
    Reanalysis,
    Role,
    SettingValue,
    Task,
)


class Snapshot(Struct, frozen=True, array_like=True):
    """A part of a snapshot. Stored by position: a new field goes to the end, with a default."""


class RowOfLease(Snapshot, frozen=True):
    """A row of a lease."""

    lease: int

    @property
    def key(self) -> int:
        """Key among rows of its kind."""
        return self.lease


class CountedSnapshot(RowOfLease, frozen=True):
    """Row with the counted chunks of a lease; see Ledger."""

    worker: str
    incarnation: int
    first: int
    """Smaller numbers belong to earlier leases; -1 if unknown."""
    high_water: int
    gaps: list[tuple[int, int]]
    refused: list[int] = []


class LedgerSnapshot(Snapshot, frozen=True):
    """See Ledger."""

    env_steps: int
    rows: int
    episodes: int
    chunks: int
    has_forgotten: bool = False
    """True if leases were forgotten: then some chunks may or may not be counted."""
    counted: list[CountedSnapshot] = []
    repeated: int = 0
    refused: int = 0
    refused_env_steps: int = 0
    lost_collectors: int = 0
    payload_bytes: int = 0


class IndexSnapshot(Snapshot, frozen=True):
    """See ReplayIndex; live chunks are journaled singly."""

    next_row: int
    first_live_row: int
    sampled_rows: int
    removed_rows: int


class ReplaySnapshot(Snapshot, frozen=True):
    """See ReplayAccounting."""

    ledger: LedgerSnapshot
    index: IndexSnapshot
    newest_chunk_policy: PolicyRef
    dropped_rows: int
    settled_rows: int
    limiter_dropped_rows: int
    random_state: str = ""
    """State of the generator of draws, as JSON because of its 128-bit numbers."""


class AccountSnapshot(RowOfLease, frozen=True):
    """Row with the credit of a collector; see CreditBook."""

    granted: int
    arrived: int
    closed: bool = False
    """The lease is over."""


class FlowSnapshot(Snapshot, frozen=True):
    """See FlowControl."""

    policy: PolicyRef
    epoch: int
    train_iter: int
    served_iters: int
    served: list[tuple[int, int]]
    open: bool
    accounts: list[AccountSnapshot] = []
    computed_iters: int = 0


class LeaseHolder(Snapshot, frozen=True):
    """Present or former holder of a lease."""

    lease: int
    worker: str
    incarnation: int
    role: Role
    host: str
    pid: int


class LeaseSnapshot(Snapshot, frozen=True):
    """A row; see Lease."""

    holder: LeaseHolder
    index: int
    generation: int
    ready: bool
    draining: bool
    over: bool
    """True for the newest finished leases: late chunks still need their ledger."""
    cpu_us: int = 0
    """Processor time in the newest report."""

    @property
    def key(self) -> int:
        """Key among rows of its kind."""
        return self.holder.lease


class PlaceSnapshot(Snapshot, frozen=True):
    """Row of a place in an experiment for workers of a role."""

    role: Role
    index: int
    generation: int
    """The generation of the next worker in this place."""

    @property
    def key(self) -> str:
        """Key among rows of its kind."""
        return f"{self.role}/{self.index}"


class LeaseBookSnapshot(Snapshot, frozen=True):
    """See LeaseBook."""

    first_generation: int = 0
    """The generation of a place's first worker."""
    leases: list[LeaseSnapshot] = []
    places: list[PlaceSnapshot] = []


class EvaluationResult(Snapshot, frozen=True):
    """A finished evaluation, with episodes in order of their number."""

    record: CheckpointRecord
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    duration_s: float
    info: Mapping[str, Sequence[float]] = {}
    """Further values of the episodes, by name."""
    cut: int = 0
    """Number of episodes cut at evaluator.max_episode_steps."""
    task: Task = Task()

    @property
    def reward_mean(self) -> float:
        """The mean return for `best` and `stop_value`; nan for infinite returns or an infinite sum."""
        try:
            return math.fsum(self.returns) / len(self.returns)
        except (OverflowError, ValueError):
            return math.nan


class TaskSnapshot(Snapshot, frozen=True):
    """See Curriculum."""

    number: int = 0
    stage: int = 0
    """Number of begun stages of env.schedule."""
    kwargs_json: str | None = None
    """Requested arguments, as JSON; None: arguments of the stage."""
    since_env_step: int = 0
    reached: float | None = None
    """Mean return of the newest evaluation at this task."""
    asked: str | None = None
    """Arguments of a requested task that has not begun."""


class CommanderSnapshot(Snapshot, frozen=True):
    """See Commander."""

    next_evaluation: int
    next_checkpoint: int | None
    saving: CheckpointReason | None
    evaluating: CheckpointRecord | None
    to_evaluate: CheckpointRecord | None
    end: tuple[str, str] | None
    final_saved: bool
    skip_final_evaluation: bool
    evaluated_train_iter: int
    last: EvaluationResult | None
    best: tuple[CheckpointRecord, float] | None
    last_record: CheckpointRecord | None
    asked_env_step: int = 0
    opponents: list[CheckpointRecord] = []
    task: TaskSnapshot = TaskSnapshot()
    reset: tuple[CheckpointRecord, str] | None = None
    """Weights with which a policy of a league is to begin again, and the reason."""


class EvaluationSnapshot(Snapshot, frozen=True):
    """See Evaluation; shares are (first_episode, episodes)."""

    number: int
    record: CheckpointRecord
    episodes: int
    elapsed_s: float
    undealt: list[tuple[int, int]]
    dealt: list[tuple[int, int, int]]
    """Lease, first_episode, episodes."""
    played: list[tuple[int, float, int]]
    """Episode, return, length."""
    info: dict[str, list[float]] = {}
    actions: dict[str, Histogram] = {}
    cut: int = 0
    beside: list[CheckpointRecord] | None = None
    older: list[list[CheckpointRecord]] = []
    task: Task = Task()
    scores: list[tuple[int, float]] = []
    """Episode and score of each game in a league."""


class DispatchSnapshot(Snapshot, frozen=True):
    """See EvaluationDispatch."""

    commander: CommanderSnapshot
    evaluation: EvaluationSnapshot | None
    evaluations: int
    saves: int


class RowSnapshot(Snapshot, frozen=True):
    """A row of progress.txt that waits for an evaluation."""

    env_step: int
    counters: Counters
    """Counters at the environment step; so are the metrics."""
    metrics: Mapping[str, float]
    task: int | None = None
    """None in a run with a single task."""


class EpisodesSnapshot(Snapshot, frozen=True):
    """Training episodes of a chunk, and means over its steps; or a waiting row for the episodes before."""

    returns: list[float]
    lengths: list[int]
    info: dict[str, list[float]] = {}
    row: RowSnapshot | None = None
    metrics: dict[str, MetricMean] = {}


class NewEpisodes(Snapshot, frozen=True):
    """Episodes of the chunks since the last turn. Thousands may lie between two rows of progress.txt, so the journal
    stores them turn by turn."""

    first: int
    """Number of earlier chunks that wait for the row; journaled chunks from this number on are void."""
    chunks: list[EpisodesSnapshot]


class ProgressSnapshot(Snapshot, frozen=True):
    """See ProgressRows. Training episodes since the last row are left out if journaled as NewEpisodes."""

    next_env_step: int
    epoch: int
    shown_env_step: int
    returns: list[float]
    lengths: list[int]
    test: EvaluationResult | None
    metrics: dict[str, float]
    newest: list[tuple[float, int]] = []
    """Returns and lengths of the newest training episodes, if checkpoints are evaluated by training episodes."""
    info: dict[str, list[float]] = {}
    given: list[ProgressRow] = []
    """Rows of the newest turn, or of all turns of a commit; progress.txt itself shows if they were written."""
    ended: list[EpisodesSnapshot] = []
    """Training episodes and waiting rows, journaled as NewEpisodes. Older journals have the episodes in `returns`,
    `lengths` and `info`."""


class RestSnapshot(Snapshot, frozen=True):
    """Row with one worker's failures; see Failures."""

    worker: str
    in_all: int
    in_a_row: int
    rest_s: float
    """Remaining seconds of rest at writing."""

    @property
    def key(self) -> str:
        """Key among rows of its kind."""
        return self.worker


class FailuresSnapshot(Snapshot, frozen=True):
    """See Failures."""

    elapsed_s: float = 0.0
    """Seconds since the first failure of the present row of failures."""
    workers: list[RestSnapshot] = []


class DeathsSnapshot(Snapshot, frozen=True):
    """See Deaths."""

    role: Role
    in_a_row: int
    elapsed_s: float
    """Seconds since the first of them."""
    newest: list[tuple[str, str]]
    """Workers and their ends."""


class CallbacksSnapshot(Snapshot, frozen=True):
    """See CallbackBook."""

    answered: int = 0
    events: list[CallbackEvent] = []
    returns: list[float] = []
    """Returns of training episodes without an event; the next fields are of the same episodes."""
    lengths: list[int] = []
    env_steps: list[int] = []
    left_out: int = 0
    states: dict[str, bytes] = {}
    changes: dict[str, list[tuple[int, SettingValue]]] = {}
    stopped: str | None = None
    wants_episodes: bool = True
    closed: bool = False


class ReanalysisRow(Snapshot, frozen=True):
    """A row: the newest reanalysis of a chunk with live rows."""

    reanalysis: IndexedReanalysis

    @property
    def key(self) -> int:
        """Key among rows of its kind: the chunk's first row."""
        return self.reanalysis.meta.first_row


class AskedSnapshot(Snapshot, frozen=True):
    """A chunk in reanalysis."""

    lease: int
    request: int
    chunk: IndexedChunk
    target: PolicyRef
    came: Reanalysis | None = None
    """Result whose target network is not confirmed yet."""


class ReanalysisSnapshot(Snapshot, frozen=True):
    """See ReanalysisBook."""

    targets: list[PolicyRef] = []
    """The newest published target networks."""
    accepted: int = 0
    rows: int = 0
    target: PolicyRef = PolicyRef()
    """The target network of the newest reanalysis."""
    given_rows: int = 0
    compute_s: float = 0.0
    requests: list[tuple[int, int]] = []
    """Lease and newest request of each reanalyzer."""
    asked: list[AskedSnapshot] = []
    newest: list[ReanalysisRow] = []
