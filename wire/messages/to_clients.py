"""Answers of the coordinator to its clients."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from remuda.wire.messages.parts import (
    LedgerCounts,
    LogPosition,
    LongText,
    Message,
    Part,
    PathText,
    Quota,
    Role,
    ShortText,
    Used,
    Uuid,
)

WorkerState = Literal["idle", "busy", "stuck", "lost", "draining"]
ExperimentState = Literal["queued", "starting", "running", "stopping", "finished", "stopped", "failed"]
OVER = ("finished", "stopped", "failed")
"""Final states of an experiment."""


class Submitted(Message, frozen=True):
    """The experiment is queued (or already starting)."""

    experiment: Uuid
    run_dir: PathText


class CoordinatorLoad(Part, frozen=True):
    """Load of the coordinator's process."""

    longest_turn_s: float = 0.0
    """Longest turn of its loop in the last minute; the coordinator answers between turns only."""
    longest_turn_ever_s: float = 0.0
    """Longest turn since the start."""
    descriptors: int = 0
    """Number of open files and connections."""
    descriptor_limit: int = 0
    """Limit of the operating system."""


class RefusalCounts(Part, frozen=True):
    """Refusals of a coordinator and its stream server since the coordinator's start, by reason."""

    unknown_key: int = 0
    """Connections with a key outside the list `authorized`."""
    no_key: int = 0
    """Connections without a key, with the key of another coordinator, or of another program."""
    revoked_key: int = 0
    """Messages over a connection with a key that was revoked or replaced in the meantime."""
    forbidden: int = 0
    """Messages that the right of the sender's key does not include."""
    taken_identity: int = 0
    """Messages under the routing id of another peer."""


class CoordinatorStatus(Part, frozen=True):
    """The coordinator in `remuda status --json`."""

    id: Uuid
    address: str
    pid: int
    uptime_s: float
    protocol: int
    load: CoordinatorLoad = CoordinatorLoad()
    refusals: RefusalCounts = RefusalCounts()


class WorkerStatus(Part, frozen=True):
    """A worker in `remuda status --json`."""

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
    """Processor time per second, without child processes."""
    work_share: float | None
    """Share of the last seconds without waiting; null without a lease, or before the first report."""
    cpus: int
    """Cores for the process; 0 until the worker registers with a restarted coordinator."""
    memory_bytes: int
    """Memory of the machine; 0 as above."""


class PolicyStatus(Part, frozen=True):
    """One of several policies of an experiment; environment steps are the experiment's."""

    name: str
    train_iter: int
    episode: int
    """Episodes of its agents."""
    policy_version: int
    last_return: float | None
    best_return: float | None
    train_iters_per_s: float
    policy_lag: int
    samples_per_insert: float | None
    rating: float | None = None
    """In a league, of the newest evaluated checkpoint."""


class ExperimentStatus(Part, frozen=True):
    """An experiment in `remuda status --json`."""

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
    """Reason why a queued experiment does not start yet."""
    reanalyzed_rows: int = 0
    """Rows from reanalyzers; a row counts with every reanalysis."""
    target_train_iter: int = 0
    """Update count of the newest target network behind these rows."""
    priority: int = 0
    """Experiments with a higher priority get workers first."""
    ledger: LedgerCounts | None = None
    """None if unknown."""
    policies: list[PolicyStatus] = field(default_factory=list[PolicyStatus])
    """Status of each policy, if there are several. Counters above are then sums over policies, returns are means."""
    user: str = ""
    """Name of the key that submitted the experiment."""
    project: str = ""
    used: Used = Used()
    """Use since the submission."""
    rating: float | None = None
    """In a league of a single policy, of the newest evaluated checkpoint."""


class Status(Message, frozen=True):
    """Answer to StatusRequest."""

    coordinator: CoordinatorStatus
    workers: list[WorkerStatus]
    experiments: list[ExperimentStatus]


class Done(Message, frozen=True):
    """The request was carried out, or is being carried out."""


class BillLine(Part, frozen=True):
    """Use of an account, a run or a day; fields that do not apply are empty."""

    user: str = ""
    project: str = ""
    name: str = ""
    """Of the run."""
    experiment: str = ""
    """Id of the run."""
    day: str = ""
    """Date, UTC."""
    runs: int = 0
    """Number of runs."""
    used: Used = Used()


class Bill(Message, frozen=True):
    """Answer to BillRequest."""

    lines: list[BillLine]
    """Most worker-seconds first; days in order."""


class AccountStatus(Part, frozen=True):
    """An account, with its use in the period of its quota."""

    quota: Quota
    workers: int
    """Workers at present."""
    used: Used
    share_hours: float
    """Worker-hours by which the queue is ordered: half of an hour is forgotten in a week; divided by the weight."""


class Quotas(Message, frozen=True):
    """Answer to QuotaRequest: all accounts with a quota, or with use that still counts."""

    accounts: list[AccountStatus]


class LogPiece(Part, frozen=True):
    """Whole lines of a log (or a part of a very long line)."""

    position: LogPosition
    """Begin of the next piece."""
    label: ShortText
    """Worker of these lines, if the source has several files."""
    text: LongText


class LogText(Message, frozen=True):
    """Answer to LogRequest."""

    pieces: list[LogPiece]
    """Pieces of new or grown files; recently read files come last."""
    over: bool
    """True if the experiment is over and everything was read."""
    more: bool = False
    """True if files are missing in this answer: ask again at once, with the same `last_lines`."""


ToClient = Submitted | Status | Done | Bill | Quotas | LogText
