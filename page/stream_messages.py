"""What the event stream says: one struct for each kind of message, and how a message is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct, structs

from remuda.logbook.series import Evaluation, Interval
from remuda.logbook.usage import Usage
from remuda.page.coordinator_link import Presence
from remuda.page.herd import CoordinatorView, HostView, WorkerView
from remuda.page.run_rows import RunRow
from remuda.page.timeline import EventView, shares
from remuda.page.waiting import Queue
from remuda.training.vitals import ROLES


class Message(Struct, frozen=True):
    """One message of the stream."""

    id: str
    event: str
    data: object

    def encoded(self) -> bytes:
        """As `text/event-stream` has it. JSON holds no end of a line."""
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (
            self.id.encode(),
            self.event.encode(),
            msgspec.json.encode(self.data),
        )


class HerdNews(Struct, frozen=True):
    """The herd, or what has changed in it."""

    all: bool
    coordinator: CoordinatorView
    hosts: list[HostView]
    workers: list[WorkerView]
    gone: list[str]


class RunsNews(Struct, frozen=True):
    """Runs that have changed."""

    all: bool
    runs: list[RunRow]
    gone: list[str]


class RoleShares(Struct, frozen=True):
    """One role in one interval."""

    role: str
    processes: int
    cpu_cores: float
    shares: dict[str, float]


class IntervalPoint(Struct, frozen=True):
    """One interval of the time series."""

    wall_s: float
    past_s: float
    env_step: int
    train_iter: int
    episode: int
    env_steps_per_s: float
    train_iters_per_s: float
    return_mean: float | None
    buffer_rows: int | None
    policy_lag: int | None
    samples_per_insert: float | None
    roles: list[RoleShares]


class EvaluationPoint(Struct, frozen=True):
    """One evaluation of the time series."""

    wall_s: float
    env_step: int
    train_iter: int
    return_mean: float | None
    return_std: float | None
    best: bool
    checkpoint: str


class Points(Struct, frozen=True):
    """New records of a run's time series."""

    run: str
    reset: bool
    """What was told before is no longer true: ask for everything again."""
    evaluations: list[EvaluationPoint]
    intervals: list[IntervalPoint]
    events: list[EventView]


class LogLines(Struct, frozen=True):
    """New lines of a log."""

    file: str
    inode: int
    begin: int
    end: int
    text: str
    reset: bool
    """The file was replaced: forget its former lines."""


class OfRun(Struct, frozen=True):
    """Something of this run has changed: ask again."""

    run: str


class PresenceNews(Struct, frozen=True):
    """The coordinator came or went."""

    coordinator: Presence
    since_s: float | None


def interval_point(record: Interval) -> IntervalPoint:
    """As a stream tells it."""
    return IntervalPoint(
        wall_s=record.wall_s,
        past_s=record.past_s,
        env_step=record.env_step,
        train_iter=record.train_iter,
        episode=record.episode,
        env_steps_per_s=record.env_steps_per_s,
        train_iters_per_s=record.train_iters_per_s,
        return_mean=record.return_mean,
        buffer_rows=record.buffer_rows,
        policy_lag=record.policy_lag,
        samples_per_insert=record.samples_per_insert,
        roles=[_role(usage) for usage in sorted(record.roles, key=_place)],
    )


def evaluation_point(record: Evaluation) -> EvaluationPoint:
    """As a stream tells it."""
    return EvaluationPoint(
        record.wall_s,
        record.env_step,
        record.train_iter,
        record.return_mean,
        record.return_std,
        record.best,
        record.checkpoint,
    )


def _role(usage: Usage) -> RoleShares:
    kinds: Mapping[str, float] = {
        name: value
        for name, value in structs.asdict(usage).items()
        if name in ("work", "env") or name.startswith("wait_")
    }
    return RoleShares(usage.role, usage.processes, usage.cpu_cores, shares(kinds, 1.0) or {})


def _place(usage: Usage) -> int:
    return ROLES.index(usage.role) if usage.role in ROLES else len(ROLES)


def without_time(queue: Queue) -> Queue:
    """The queue, whose numbers of seconds always grow, for a comparison."""
    return Queue([structs.replace(each, wall_s=0.0) for each in queue.experiments], queue.free)


def batch(messages: Sequence[Message]) -> bytes:
    """All of them as bytes."""
    return b"".join(message.encoded() for message in messages)
