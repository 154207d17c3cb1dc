"""Rows that look ahead step by step, from the trace of a vector: for unrolled models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.collector.arrays import Bools, Integers
from remuda.collector.frames import observation_columns
from remuda.collector.rows import state_column
from remuda.collector.trace import Trace
from remuda.environments.spaces import Array


@dataclass(frozen=True)
class Ahead:
    """Length of the episode ahead of each slot of time."""

    steps: Integers
    """[time, env]: remaining steps of the episode, this step included, `window_steps` at most."""
    complete: Bools
    """[time, env]: True if later steps cannot change the window: it has `window_steps`, or the episode ended."""


def steps_ahead(done: Bools, *, window_steps: int) -> Ahead:
    """Look ahead from every slot, over all environments at once. `done` [time, env] marks the last step of an episode,
    which no window passes."""
    slots = len(done)
    own = np.arange(slots)[:, None]
    ends = np.where(done, own, slots)
    end = np.minimum.accumulate(ends[::-1], axis=0)[::-1]  # the slot that ends the episode; `slots`: none so far
    steps = np.minimum(np.minimum(end + 1, slots) - own, window_steps)
    return Ahead(steps, (end < slots) | (steps == window_steps))


class UnrollRows:
    """One row per real step, with the next W = unroll_steps + n_step steps of its episode.

    Columns: obs [rows, W + 1, …], action [rows, K, …], reward float32 [rows, W], steps int32 [rows], terminated bool
    [rows], and the policy's recorded values [rows, K + 1, …]: see remuda.config.declaration.Unrolls. Rows are in order
    of time, then of environment. A row waits for W steps or the end of its episode. Images are frames and indices
    (remuda.buffer.frames).
    """

    whole_slots = False

    def __init__(self, *, unroll_steps: int, n_step: int, discount: float) -> None:
        self.kept = unroll_steps + n_step
        self.discount = discount
        self._unroll_steps = unroll_steps

    def take(self, trace: Trace, *, last: bool) -> tuple[dict[str, Array], int]:
        """See Rows."""
        end, num_envs, acted = trace.end, trace.num_envs, self._unroll_steps
        ahead = steps_ahead(trace.done[:end], window_steps=self.kept)
        pending = trace.pending[:end]
        given = pending if last else pending & ahead.complete
        first = np.flatnonzero(given)  # of each row's window, counting time-major over slots and environments
        steps = ahead.steps.take(first)[:, None]
        offsets = np.arange(self.kept + 1)
        seen = first[:, None] + num_envs * np.minimum(offsets, steps)
        taken = first[:, None] + num_envs * np.minimum(offsets[:-1], steps - 1)
        missing = offsets[:-1] >= steps
        columns: dict[str, Array] = {
            **observation_columns(trace.observations, {"obs": seen}),
            "action": _of(trace.recorded.get("action", trace.actions), taken[:, :acted], missing[:, :acted]),
            "reward": _of(trace.reward, taken, missing).astype(np.float32),
            "steps": steps[:, 0].astype(np.int32),
            "terminated": trace.terminated.take(taken[:, -1]),
        }
        columns |= state_column(trace, first)
        for name, values in trace.recorded.items():
            if name != "action":
                columns[name] = _of(values, taken[:, : acted + 1], missing[:, : acted + 1])
        pending &= ~given
        return columns, int(first[0]) // num_envs if len(first) else end - 1


def _of(values: Array, taken: Integers, missing: Bools) -> Array:
    """Return `values` [time, env, …] at `taken` [rows, steps], and 0 for `missing` steps."""
    picked = values.reshape(-1, *values.shape[2:]).take(taken, axis=0)
    picked[missing] = 0
    return picked
