"""From what a vector of environments did to sequences that overlap: for recurrent networks that learn from replay."""

from __future__ import annotations

import numpy as np

from remuda.collector.arrays import Integers
from remuda.collector.frames import observation_columns
from remuda.collector.rows import legal_columns, state_column
from remuda.collector.trace import Trace
from remuda.environments.spaces import Array


class SequenceRows:
    """Every `period_slots` slots of time a row for each environment: that slot and the `slots` - 1 after it, in order,
    through the ends of episodes.

    Columns: obs [rows, slots + 1, …], action [rows, slots, …], reward float32 [rows, slots], terminated, done and valid
    bool [rows, slots], and whatever the policy records of each action: see remuda.config.declaration.Sequences. `state`
    float32 [rows, size] is what the policy carried before obs[:, 0]. In order of time, then of environment. A sequence
    that is not complete when its rollout ends is lost. Images come as frames and indices (remuda.buffer.frames). Where
    environments say which actions are legal, `legal` bool [rows, slots + 1, actions] is that of each observation.
    """

    whole_slots = False

    def __init__(self, *, slots: int, period_slots: int, discount: float) -> None:
        self.kept = slots
        self.discount = discount
        self._slots, self._period = slots, period_slots
        self._next = self.kept + 1
        """The slot of the trace in which the next row begins: at first that after the reset of all environments."""

    def take(self, trace: Trace, *, last: bool) -> tuple[dict[str, Array], int]:
        """See Rows. A sequence is given out once it is complete, so with `last` there is nothing to give."""
        starts: Integers = np.arange(self._next, trace.end - self._slots + 1, self._period, dtype=np.int64)
        self._next += self._period * len(starts)
        if not last:
            self._next -= trace.end - trace.kept  # the trace is shifted by that
        num_envs = trace.num_envs
        first = (starts[:, None] * num_envs + np.arange(num_envs)).ravel()  # counting time-major
        seen = first[:, None] + num_envs * np.arange(self._slots + 1)
        taken = seen[:, :-1]
        columns: dict[str, Array] = {
            **observation_columns(trace.observations, {"obs": seen}),
            "action": _of(trace.actions, taken),
            "reward": _of(trace.reward, taken).astype(np.float32),
            "terminated": _of(trace.terminated, taken),
            "done": _of(trace.done, taken),
            "valid": _of(trace.pending, taken),
            **legal_columns(trace, {"legal": seen}),
            **state_column(trace, first),
        }
        for name, values in trace.recorded.items():
            columns[name] = _of(values, taken)
        return columns, int(starts[0]) if len(starts) else trace.end - 1


def _of(values: Array, taken: Integers) -> Array:
    """What `values` [time, env, …] are at `taken` [rows, slots]."""
    return values.reshape(-1, *values.shape[2:]).take(taken, axis=0)
