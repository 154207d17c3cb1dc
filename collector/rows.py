"""Rows of experience from the trace of a vector: single steps for replay, segments for on-policy algorithms.

Rows of unrolled models are in unrolls.py, rows of recurrent replay in sequences.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from remuda.collector.arrays import Floats, Integers
from remuda.collector.frames import observation_columns
from remuda.collector.trace import Trace
from remuda.environments.spaces import Array
from remuda.policy.returns import n_step_windows


class Rows(Protocol):
    """Makes rows of a trace."""

    @property
    def kept(self) -> int:
        """Slots of time carried over from one chunk to the next."""
        ...

    @property
    def whole_slots(self) -> bool:
        """True if a chunk is a number of slots of time, resets included, instead of real steps."""
        ...

    @property
    def discount(self) -> float:
        """Discount of a reward one step later."""
        ...

    def take(self, trace: Trace, *, last: bool) -> tuple[dict[str, Array], int]:
        """Return the complete rows (`last`: all pending rows) and the slot of the first row."""
        ...


class NStepRows:
    """One row per real step, of the n steps from there on (Sutton and Barto 2018, section 7.1).

    Columns: obs and next_obs [rows, …], action [rows, …], reward float32 [rows] (discounted sum over its m steps),
    discount float32 [rows] (discount^m, or 0 if the episode terminated): a value estimate is reward + discount *
    value(next_obs). Rows are in order of time, then of environment. Images are frames and indices
    (remuda.buffer.frames). `state` float32 [rows, size] is the state of a recurrent policy before obs. `legal` and
    `next_legal` bool [rows, actions] are the legal actions of obs and next_obs, if environments report masks.
    """

    whole_slots = False

    def __init__(self, *, n_step: int, discount: float) -> None:
        self.kept = n_step
        self.discount = discount
        self._powers = discount ** np.arange(n_step + 1)

    def take(self, trace: Trace, *, last: bool) -> tuple[dict[str, Array], int]:
        """See Rows."""
        end, num_envs = trace.end, trace.num_envs
        windows = n_step_windows(trace.reward[:end], trace.done[:end], n_step=self.kept, discount=self.discount)
        pending = trace.pending[:end]
        given = pending if last else pending & windows.complete
        first = np.flatnonzero(given)  # of each row's window, counting time-major over slots and environments
        length = windows.length.take(first)
        after = first + num_envs * length
        bootstraps = ~trace.terminated.take(after - num_envs)
        columns: dict[str, Array] = {
            **observation_columns(trace.observations, {"obs": first, "next_obs": after}),
            "action": trace.actions.reshape(-1, *trace.actions.shape[2:]).take(first, axis=0),
            "reward": windows.reward.take(first).astype(np.float32),
            "discount": (self._powers.take(length) * bootstraps).astype(np.float32),
            **legal_columns(trace, {"legal": first, "next_legal": after}),
            **state_column(trace, first),
        }
        pending &= ~given
        return columns, int(first[0]) // num_envs if len(first) else end - 1


class SegmentRows:
    """One row per environment: the T slots of the chunk, in order.

    Columns: obs [rows, T + 1, …], action [rows, T, …], reward float32 [rows, T], terminated, done and valid bool [rows,
    T], and the policy's recorded values, like log_prob [rows, T]. An invalid slot is a reset, or time of an absent
    agent or of an older policy: neither counted nor learned from. A row may have invalid slots only. obs[:, t + 1] is
    the true last observation if slot t ended an episode. return_so_far float32 [rows] is the discounted sum of rewards
    of the current episode before the segment (gamma * sum + reward, step by step). Images are frames and indices.
    `state` float32 [rows, size] is the state of a recurrent policy before obs[:, 0]. `legal` bool [rows, T + 1,
    actions] has the legal actions of each observation, if environments report masks.
    """

    whole_slots = True
    kept = 1  # whether the slot before the chunk ended an episode decides whether the first one is a reset

    def __init__(self, *, discount: float) -> None:
        self.discount = discount
        self._return_so_far: Floats | None = None
        """[env], after the newest segment."""

    def take(self, trace: Trace, *, last: bool) -> tuple[dict[str, Array], int]:
        """See Rows. Segments are always complete, so `last` gives no rows."""
        new = trace.new
        seen = np.arange(trace.kept * trace.num_envs, (trace.end + 1) * trace.num_envs)
        columns: dict[str, Array] = {
            **observation_columns(trace.observations, {"obs": seen.reshape(-1, trace.num_envs).T}),
            "action": _by_env(trace.actions[new]),
            "reward": _by_env(trace.reward[new]).astype(np.float32),
            "terminated": _by_env(trace.terminated[new]),
            "done": _by_env(trace.done[new]),
            "valid": _by_env(trace.pending[new]),
            **legal_columns(trace, {"legal": seen.reshape(-1, trace.num_envs).T}),
            **state_column(trace, seen[: trace.num_envs]),
        }
        for name, values in trace.recorded.items():
            columns[name] = _by_env(values[new])
        columns["return_so_far"] = self._advance_returns(trace)
        trace.pending[: trace.end] = False
        if last:
            return {name: column[:0] for name, column in columns.items()}, 0
        return columns, trace.kept

    def _advance_returns(self, trace: Trace) -> Array:
        """Return the sums before the segments, and advance to the sums after them."""
        before = np.zeros(trace.num_envs) if self._return_so_far is None else self._return_so_far
        start = np.where(trace.done[trace.kept - 1], 0.0, before)
        reward, done, valid = trace.reward[trace.new], trace.done[trace.new], trace.pending[trace.new]
        if not len(reward):
            return start.astype(np.float32)
        steps_from = np.cumsum(valid[::-1], axis=0)[::-1]  # [time, env]: real steps from this slot on
        ends_from = np.cumsum(done[::-1], axis=0)[::-1]
        brought = np.where(ends_from > 0, 0.0, reward * self.discount ** (steps_from - valid)).sum(axis=0)
        self._return_so_far = brought + np.where(ends_from[0] > 0, 0.0, start * self.discount ** steps_from[0])
        return start.astype(np.float32)


def state_column(trace: Trace, first: Integers) -> dict[str, Array]:
    """Return the column `state`, float32 [rows, size], before the first observation of rows that begin in the slots
    `first`, counted time-major over slots and environments. Empty for policies without a state."""
    size = trace.state.shape[-1]
    return {"state": trace.state.reshape(-1, size).take(first, axis=0)} if size else {}


def legal_columns(trace: Trace, picks: Mapping[str, Integers]) -> dict[str, Array]:
    """Return the legal actions in the picked observations, by name: bool [*picks.shape, actions]. Picks count
    time-major over slots and environments. Empty without masks."""
    if not trace.keeps_legal:
        return {}
    legal = trace.legal.reshape(-1, trace.legal.shape[-1])
    return {name: legal.take(picked, axis=0) for name, picked in picks.items()}


def _by_env(values: Array) -> Array:
    """Return [time, env, …] as [env, time, …], as a copy."""
    return np.array(values.swapaxes(0, 1), order="C")
