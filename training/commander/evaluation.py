"""Results of evaluations, and the next outstanding evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from remuda.logbook.statistics import merged
from remuda.training.snapshot import ResultSnapshot
from remuda.wire.messages import CheckpointRecord, Task


@dataclass(frozen=True)
class EvaluationResult:
    """A finished evaluation, with episodes in order of their number."""

    record: CheckpointRecord
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    duration_s: float
    info: Mapping[str, Sequence[float]] = field(default_factory=dict[str, list[float]])
    """Further values of the episodes, by name."""
    cut: int = 0
    """Number of episodes cut at evaluator.max_episode_steps."""
    task: Task = field(default_factory=Task)
    """The played task."""

    @cached_property
    def reward_mean(self) -> float:
        """The mean return for `best` and `stop_value`; nan for infinite returns or an infinite sum."""
        try:
            return math.fsum(self.returns) / len(self.returns)
        except (OverflowError, ValueError):
            return math.nan

    def snapshot(self) -> ResultSnapshot:
        """Return the state for a restart."""
        info = merged([self.info])
        returns, lengths = list(self.returns), list(self.lengths)
        return ResultSnapshot(self.record, returns, lengths, self.duration_s, info, self.cut, self.task)

    @classmethod
    def of(cls, snapshot: ResultSnapshot) -> EvaluationResult:
        """The result of a snapshot."""
        returns, lengths = tuple(snapshot.returns), tuple(snapshot.lengths)
        return cls(snapshot.record, returns, lengths, snapshot.duration_s, snapshot.info, snapshot.cut, snapshot.task)


def next_boundary(step: int, interval: int) -> int:
    """The first multiple of `interval` after `step`."""
    return step + interval - step % interval


def boundary_at(step: int, interval: int) -> int:
    """The last multiple of `interval` up to `step`, itself included."""
    return step - step % interval


def due_env_step(env_step: int, train_iter: int, interval_env_steps: int) -> int:
    """Return the boundary of a checkpoint's evaluation; 0 for the initial policy, however late it was saved."""
    return boundary_at(env_step, interval_env_steps) if train_iter else 0


@dataclass(frozen=True)
class Awaited:
    """An outstanding evaluation."""

    due_env_step: int
    """Its boundary."""
    begun: bool
    """True once its checkpoint is being saved or played. Otherwise the evaluation is only due, and may wait for
    updates."""


def is_best(reward_mean: float, best: float | None) -> bool:
    """True if a checkpoint with this mean return replaces the `best`; at equal returns the earlier checkpoint stays."""
    return math.isfinite(reward_mean) and (best is None or reward_mean > best)


@dataclass(frozen=True)
class BestCheckpoint:
    """A checkpoint and its mean evaluation return, for index.json."""

    record: CheckpointRecord
    reward_mean: float
