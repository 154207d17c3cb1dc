"""Boundaries of evaluations, and the best checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass

from remuda.wire.messages import CheckpointRecord


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
