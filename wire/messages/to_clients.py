"""What the coordinator answers its clients."""

from __future__ import annotations

from typing import Literal

from remuda.wire.messages.parts import LogPlace, LongText, Message, Part, PathText, Role, ShortText, Uuid

WorkerState = Literal["idle", "busy", "stuck", "lost", "draining"]
ExperimentState = Literal["queued", "starting", "running", "stopping", "finished", "stopped", "failed"]
OVER = ("finished", "stopped", "failed")
"""States in which nothing more happens to an experiment."""


class Submitted(Message, frozen=True):
    """The experiment is queued (or already starting)."""

    experiment: Uuid
    run_dir: PathText


class CoordinatorLoad(Part, frozen=True):
    """How busy the coordinator's own process is."""

    longest_turn_s: float = 0.0
    """The longest turn of its loop in the last minute: for so long nobody was answered."""
    longest_turn_ever_s: float = 0.0
    """The longest turn since it was started."""
    descriptors: int = 0
    """Files and connections that are open."""
    descriptor_limit: int = 0
    """How many of them the operating system allows."""


class CoordinatorStatus(Part, frozen=True):
    """The coordinator as `remuda status --json` shows it."""

    id: Uuid
    address: str
    pid: int
    uptime_s: float
    protocol: int
    load: CoordinatorLoad = CoordinatorLoad()


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
    cpus: int
    """Cores that its process may use; 0 where it has not said so since the coordinator was started again."""
    memory_bytes: int
    """Of its machine; 0 as above."""


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


class Done(Message, frozen=True):
    """It was done, or is under way."""


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
    """Of files that are new to the client, or have grown; those it was told of last come last."""
    over: bool
    """The experiment is over and everything was read."""
    more: bool = False
    """There are other files of which this answer says nothing: ask at once, with the same `last_lines`."""
