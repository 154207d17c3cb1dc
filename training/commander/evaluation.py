"""How a checkpoint was evaluated, and which evaluation is still to come."""

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
    """A finished evaluation; episodes in order of their number, whichever evaluator played them."""

    record: CheckpointRecord
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    duration_s: float
    info: Mapping[str, Sequence[float]] = field(default_factory=dict[str, list[float]])
    """Other values of the episodes, by name."""
    cut: int = 0
    """How many of the episodes were cut at evaluator.max_episode_steps, before they had ended."""
    task: Task = field(default_factory=Task)
    """The task that was played."""

    @cached_property
    def reward_mean(self) -> float:
        """The mean return that `best` and `stop_value` use; nan if returns are infinite, or their sum is."""
        try:
            return math.fsum(self.returns) / len(self.returns)
        except (OverflowError, ValueError):
            return math.nan

    def snapshot(self) -> ResultSnapshot:
        """What is needed to continue after a restart."""
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
    """The boundary that the evaluation of a checkpoint belongs to; for the initial policy 0, however late it was
    saved."""
    return boundary_at(env_step, interval_env_steps) if train_iter else 0


@dataclass(frozen=True)
class Awaited:
    """An evaluation that is still to come."""

    due_env_step: int
    """The boundary that it belongs to."""
    begun: bool
    """Whether its checkpoint is being saved or played. If not, it is only due, and may be delayed until something was
    learned."""


def is_best(reward_mean: float, best: float | None) -> bool:
    """Whether a checkpoint with this mean return replaces the `best`; of two equals the earlier one stays."""
    return math.isfinite(reward_mean) and (best is None or reward_mean > best)


@dataclass(frozen=True)
class BestCheckpoint:
    """A checkpoint and its mean evaluation return, as index.json keeps them."""

    record: CheckpointRecord
    reward_mean: float
