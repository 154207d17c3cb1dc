"""Answers of the coordinator to its clients."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from remuda.wire.messages.parts import LedgerCounts, LogPlace, LongText, Message, Part, PathText, Role, ShortText, Uuid

WorkerState = Literal["idle", "busy", "stuck", "lost", "draining"]
ExperimentState = Literal["queued", "starting", "running", "stopping", "finished", "stopped", "failed"]
OVER = ("finished", "stopped", "failed")
"""States of an experiment that is over."""


class Submitted(Message, frozen=True):
    """The experiment is queued (or already starting)."""

    experiment: Uuid
    run_dir: PathText


class CoordinatorLoad(Part, frozen=True):
    """How busy the coordinator's own process is."""

    longest_turn_s: float = 0.0
    """The longest turn of its loop in the last minute; during a turn nobody is answered."""
    longest_turn_ever_s: float = 0.0
    """The longest turn since it was started."""
    descriptors: int = 0
    """Number of open files and connections."""
    descriptor_limit: int = 0
    """Number of them that the operating system allows."""


class RefusalCounts(Part, frozen=True):
    """How often a coordinator and its stream server have refused somebody, since the coordinator was started."""

    unknown_key: int = 0
    """Connections with a key that is not in the list `authorized`."""
    no_key: int = 0
    """Connections without a key, with the key of another coordinator, or of another program."""
    revoked_key: int = 0
    """Messages over a connection whose key has been revoked or replaced since it was made."""
    forbidden: int = 0
    """Messages that the right of their sender's key does not allow."""
    taken_identity: int = 0
    """Messages under the routing id of another peer."""


class CoordinatorStatus(Part, frozen=True):
    """The coordinator as `remuda status --json` shows it."""

    id: Uuid
    address: str
    pid: int
    uptime_s: float
    protocol: int
    load: CoordinatorLoad = CoordinatorLoad()
    refusals: RefusalCounts = RefusalCounts()


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
    """Processor time per second, without child processes."""
    work_share: float | None
    """Share of the last seconds in which it did not wait; null without a lease, or before its first report."""
    cpus: int
    """Cores that its process may use; 0 until it registers with a restarted coordinator."""
    memory_bytes: int
    """Memory of its machine; 0 as above."""


class PolicyStatus(Part, frozen=True):
    """One of several policies of an experiment; steps of the environment are the experiment's."""

    name: str
    train_iter: int
    episode: int
    """Of its agents."""
    policy_version: int
    last_return: float | None
    best_return: float | None
    train_iters_per_s: float
    policy_lag: int
    samples_per_insert: float | None


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
    reanalyzed_rows: int = 0
    """Rows that reanalyzers have computed again, each time counted."""
    target_train_iter: int = 0
    """The update after which the target network of the newest of them was made."""
    priority: int = 0
    """Experiments with a higher priority get workers first."""
    ledger: LedgerCounts | None = None
    """None where that is not known."""
    policies: list[PolicyStatus] = field(default_factory=list[PolicyStatus])
    """Of an experiment with several policies. What stands above are then sums of what they have learned, and their mean
    return."""


class Status(Message, frozen=True):
    """Answer to StatusRequest."""

    coordinator: CoordinatorStatus
    workers: list[WorkerStatus]
    experiments: list[ExperimentStatus]


class Done(Message, frozen=True):
    """The request was carried out, or is being carried out."""


class LogPiece(Part, frozen=True):
    """Whole lines of one log (or a part of a very long one)."""

    place: LogPlace
    """Where the next piece begins."""
    label: ShortText
    """The worker whose lines these are, if the source has several files."""
    text: LongText


class LogText(Message, frozen=True):
    """Answer to LogRequest."""

    pieces: list[LogPiece]
    """Pieces of files that are new to the client or have grown; files that it got last come last."""
    over: bool
    """Whether the experiment is over and everything was read."""
    more: bool = False
    """Whether there are files that this answer does not contain: ask again at once, with the same `last_lines`."""


ToClient = Submitted | Status | Done | LogText
