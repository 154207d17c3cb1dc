"""Reasons for the end of a run, and the state of the run afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.config.workers import StopConfig
from remuda.wire.messages import CheckpointRecord, Counters, ExperimentState

STOP_VALUE = "stop_value"
ON_REQUEST = "stopped"
REACHED = (STOP_VALUE, "max_env_steps", "max_train_iters", "max_wall_s")
"""Reasons that are settings of `stop`: the run has reached its goal."""
BY_CALLBACK = "callback "
"""Prefix of the reason from a callback of the user, which has ended the run."""

LONGER, LEAST_LONGER_S, MOST_LONGER_S = 0.1, 5.0, 600.0
"""Extra time for an evaluation: a share of stop.max_wall_s, and bounds in seconds."""


@dataclass(frozen=True)
class End:
    """The run has to end."""

    reason: str
    """stop_value, max_env_steps, max_train_iters, max_wall_s, stopped; `callback <Class>: …`; or a sentence naming the
    failure."""
    explanation: str
    """Condition, value and bound, for people."""

    @property
    def text(self) -> str:
        """The reason, with the explanation if it differs."""
        return self.reason if self.explanation == self.reason else f"{self.reason}; {self.explanation}"

    @property
    def on_request(self) -> bool:
        """True for an end on request."""
        return self.reason == ON_REQUEST

    @property
    def catches_up(self) -> bool:
        """True if the learner still learns from collected experience. With all other ends, the learner has learned
        enough or must not continue."""
        return self.reason == "max_env_steps"

    @property
    def state(self) -> ExperimentState:
        """State of the finished run."""
        if self.reason in REACHED or self.reason.startswith(BY_CALLBACK):
            return "finished"
        return "stopped" if self.on_request else "failed"


def time_is_over(stop: StopConfig, counters: Counters) -> bool:
    """True once stop.max_wall_s has passed."""
    return stop.max_wall_s is not None and counters.wall_s >= stop.max_wall_s


def solved(stop: StopConfig, record: CheckpointRecord, reward: float) -> End | None:
    """The end, if the mean evaluation return of this checkpoint has reached the stop value."""
    if stop.stop_value is not None and reward >= stop.stop_value:  # false for nan
        text = f"mean evaluation return {reward:.6g} of {record.file} has reached stop_value {stop.stop_value:.6g}"
        return End(STOP_VALUE, text)
    return None


def longer_s(max_wall_s: float) -> float:
    """Return the seconds beyond stop.max_wall_s granted to an evaluation."""
    return min(max(LONGER * max_wall_s, LEAST_LONGER_S), MOST_LONGER_S)


def evaluation_is_too_late(stop: StopConfig, *, wall_s: float, waited_s: float) -> bool:
    """True if stop.max_wall_s has passed and the run should give up an evaluation after `waited_s` seconds. Time before
    the evaluation could begin does not count."""
    bound_s = stop.max_wall_s
    return bound_s is not None and min(wall_s - bound_s, waited_s) >= longer_s(bound_s)
