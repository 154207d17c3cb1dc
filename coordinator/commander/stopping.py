"""What ends a run by itself: a budget that is used up, or a return that is high enough."""

from __future__ import annotations

from remuda.config.schema import StopConfig
from remuda.coordinator.commander.decisions import End
from remuda.wire.messages import CheckpointRecord, Counters


def used_up(stop: StopConfig, counters: Counters) -> End | None:
    """The end where a budget has been reached."""
    if counters.env_step >= stop.max_env_steps:
        return _reached("max_env_steps", stop.max_env_steps, "env_step", counters.env_step)
    if stop.max_train_iters is not None and counters.train_iter >= stop.max_train_iters:
        return _reached("max_train_iters", stop.max_train_iters, "train_iter", counters.train_iter)
    if stop.max_wall_s is not None and counters.wall_s >= stop.max_wall_s:
        return _reached("max_wall_s", stop.max_wall_s, "wall_s", counters.wall_s)
    return None


def longer_s(max_wall_s: float) -> float:
    """How many seconds beyond stop.max_wall_s an evaluation is waited for."""
    return min(max(LONGER * max_wall_s, LEAST_LONGER_S), MOST_LONGER_S)


LONGER, LEAST_LONGER_S, MOST_LONGER_S = 0.1, 5.0, 600.0
"""A share of stop.max_wall_s, and its bounds in seconds."""


def solved(stop: StopConfig, record: CheckpointRecord, reward: float) -> End | None:
    """The end where the mean evaluation return of this checkpoint has reached the stop value."""
    if stop.stop_value is not None and reward >= stop.stop_value:  # false for nan
        text = f"mean evaluation return {reward:.6g} of {record.file} has reached stop_value {stop.stop_value:.6g}"
        return End("stop_value", text)
    return None


def _reached(reason: str, bound: float, counter: str, value: float) -> End:
    return End(reason, f"{counter} {value:.10g} has reached {reason} {bound:.10g}")
