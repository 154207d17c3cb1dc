"""Why a run ends: the condition, its value, and the state of the run afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.config.workers import StopConfig
from remuda.wire.messages import CheckpointRecord, Counters, ExperimentState

STOP_VALUE = "stop_value"
ON_REQUEST = "stopped"
REACHED = (STOP_VALUE, "max_env_steps", "max_train_iters", "max_wall_s")
"""Reasons that are settings of `stop`: the run has done what it was for."""
BY_CALLBACK = "callback "
"""With this begins the reason that a callback of the user gives: it has decided that the run is done."""

LONGER, LEAST_LONGER_S, MOST_LONGER_S = 0.1, 5.0, 600.0
"""A share of stop.max_wall_s, and its bounds in seconds: how much longer an evaluation may take."""


@dataclass(frozen=True)
class End:
    """The run has to end."""

    reason: str
    """stop_value, max_env_steps, max_train_iters, max_wall_s, stopped; `callback <Class>: …`; or a sentence naming what
    failed."""
    explanation: str
    """For people: which condition, its value and its bound."""

    @property
    def told(self) -> str:
        """The reason, and the explanation if it says more."""
        return self.reason if self.explanation == self.reason else f"{self.reason}; {self.explanation}"

    @property
    def on_request(self) -> bool:
        """Somebody asked for it."""
        return self.reason == ON_REQUEST

    @property
    def catches_up(self) -> bool:
        """The learner still learns from what was collected. All other ends mean that it has learned enough, or must not
        continue."""
        return self.reason == "max_env_steps"

    @property
    def state(self) -> ExperimentState:
        """The state of the run once it is over."""
        if self.reason in REACHED or self.reason.startswith(BY_CALLBACK):
            return "finished"
        return "stopped" if self.on_request else "failed"


def time_is_over(stop: StopConfig, counters: Counters) -> bool:
    """Whether stop.max_wall_s has been reached."""
    return stop.max_wall_s is not None and counters.wall_s >= stop.max_wall_s


def solved(stop: StopConfig, record: CheckpointRecord, reward: float) -> End | None:
    """The end, if the mean evaluation return of this checkpoint has reached the stop value."""
    if stop.stop_value is not None and reward >= stop.stop_value:  # false for nan
        text = f"mean evaluation return {reward:.6g} of {record.file} has reached stop_value {stop.stop_value:.6g}"
        return End(STOP_VALUE, text)
    return None


def longer_s(max_wall_s: float) -> float:
    """How many seconds beyond stop.max_wall_s an evaluation is waited for."""
    return min(max(LONGER * max_wall_s, LEAST_LONGER_S), MOST_LONGER_S)


def evaluation_is_too_late(stop: StopConfig, *, wall_s: float, waited_s: float) -> bool:
    """Whether stop.max_wall_s is over and the run should not wait longer for an evaluation after `waited_s`. Time in
    which the evaluation could not begin does not count."""
    bound_s = stop.max_wall_s
    return bound_s is not None and min(wall_s - bound_s, waited_s) >= longer_s(bound_s)
