"""Overlapping sequences from the trace of a vector: for recurrent networks with replay."""

from __future__ import annotations

import numpy as np

from remuda.collector.arrays import Integers
from remuda.collector.frames import observation_columns
from remuda.collector.rows import legal_columns, state_column
from remuda.collector.trace import Trace
from remuda.environments.spaces import Array


class SequenceRows:
    """A row for each environment every `period_slots` slots of time: `slots` slots in order, through the ends of
    episodes.

    Columns: obs [rows, slots + 1, …], action [rows, slots, …], reward float32 [rows, slots], terminated, done and valid
    bool [rows, slots], and the policy's recorded values: see remuda.config.declaration.Sequences. `state` float32
    [rows, size] is the policy's state before obs[:, 0]. Rows are in order of time, then of environment. An incomplete
    sequence at the end of the rollout is lost. Images are frames and indices (remuda.buffer.frames). `legal` bool
    [rows, slots + 1, actions] has the legal actions of each observation, if environments report masks.
    """

    whole_slots = False

    def __init__(self, *, slots: int, period_slots: int, discount: float) -> None:
        self.kept = slots
        self.discount = discount
        self._slots, self._period = slots, period_slots
        self._next = self.kept + 1
        """First slot of the next row; initially the slot after the reset of all environments."""

    def take(self, trace: Trace, *, last: bool) -> tuple[dict[str, Array], int]:
        """See Rows. Sequences are returned once complete, so `last` gives no rows."""
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
    """Return `values` [time, env, …] at the indices `taken` [rows, slots]."""
    return values.reshape(-1, *values.shape[2:]).take(taken, axis=0)
