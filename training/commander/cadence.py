"""When an evaluation and a checkpoint are due: at the multiples of their intervals, once where several were crossed."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig
from remuda.wire.messages import CheckpointRecord, Counters


def next_boundary(step: int, interval: int) -> int:
    """The first multiple of `interval` after `step`."""
    return step + interval - step % interval


def boundary_at(step: int, interval: int) -> int:
    """The last multiple of `interval` up to `step`, itself included."""
    return step - step % interval


class Cadence:
    """Keeps the next boundary of each kind. The first evaluation is due at once."""

    def __init__(self, config: ExperimentConfig) -> None:
        self._evaluation_env_steps = config.evaluator.interval_env_steps
        self._checkpoint_env_steps = config.checkpoint.interval_env_steps
        self._checkpoint_s = config.checkpoint.interval_s
        self.next_evaluation = 0
        self.next_checkpoint = self._checkpoint_env_steps
        """None if checkpoints are not due by environment steps."""

    def evaluated_at(self, env_step: int) -> None:
        """A checkpoint of this step is or was evaluated: the next evaluation is due after it."""
        self.next_evaluation = next_boundary(env_step, self._evaluation_env_steps)

    def saved_at(self, env_step: int) -> None:
        """A checkpoint of this step is saved: the next one is due after it."""
        if self._checkpoint_env_steps is not None:
            self.next_checkpoint = next_boundary(env_step, self._checkpoint_env_steps)

    def evaluation_is_due(self, counters: Counters) -> bool:
        """Whether an evaluation is due, by environment steps."""
        return counters.env_step >= self.next_evaluation

    def checkpoint_is_due(self, counters: Counters, last: CheckpointRecord | None) -> bool:
        """Whether a checkpoint is due, by environment steps or by time since the `last` one."""
        if self.next_checkpoint is not None and counters.env_step >= self.next_checkpoint:
            return True
        interval_s = self._checkpoint_s
        return interval_s is not None and last is not None and counters.wall_s >= last.wall_s + interval_s
