"""From what a vector of environments did to rows of experience: single steps for replay, segments for on-policy.
Rows for models that are unrolled are in unrolls.py, those for recurrent networks that replay in sequences.py."""

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
        """Slots of time that must be carried over from one chunk to the next."""
        ...

    @property
    def whole_slots(self) -> bool:
        """A chunk is so many slots of time, resets included, instead of so many real steps."""
        ...

    @property
    def discount(self) -> float:
        """What a reward one step later is worth less by."""
        ...

    def take(self, trace: Trace, *, last: bool) -> tuple[dict[str, Array], int]:
        """Give out the rows that are complete (`last`: all that are pending) and the slot in which the first acted."""
        ...


class NStepRows:
    """One row per real step: the n steps from it on (Sutton and Barto 2018, section 7.1).

    Columns: obs and next_obs [rows, …], action [rows, …], reward float32 [rows] (discounted sum over its m steps),
    discount float32 [rows] (discount^m, or 0 where the episode terminated): a value estimate is reward + discount *
    value(next_obs). In order of time, then of environment. Images come as frames and indices (remuda.buffer.frames).
    Policies that carry a state have it in `state` float32 [rows, size], as it was before obs. Where environments say
    which actions are legal, `legal` and `next_legal` bool [rows, actions] are those of obs and next_obs.
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
    """One row per environment: its T slots of the chunk, in order.

    Columns: obs [rows, T + 1, …], action [rows, T, …], reward float32 [rows, T], terminated, done and valid bool
    [rows, T], and whatever the policy records of each action, such as log_prob [rows, T]. A slot that is not valid is
    the environment's reset, or time in which its agent is away or played by an older policy: neither counted nor to be
    learned from. All slots of a row may be so. obs[:, t + 1] is the true last observation where
    slot t ended an episode. return_so_far float32 [rows] is the discounted sum of the rewards that the episode under
    way had brought before the segment (gamma * sum + reward, step by step). Images come as frames and indices. `state`
    float32 [rows, size] is what a policy that carries one had before obs[:, 0]. Where environments say which actions
    are legal, `legal` bool [rows, T + 1, actions] is that of each observation.
    """

    whole_slots = True
    kept = 1  # whether the slot before the chunk ended an episode decides whether the first one is a reset

    def __init__(self, *, discount: float) -> None:
        self.discount = discount
        self._return_so_far: Floats | None = None
        """[env], after the newest segment."""

    def take(self, trace: Trace, *, last: bool) -> tuple[dict[str, Array], int]:
        """See Rows. A segment is never left incomplete, so with `last` there is nothing to give."""
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
        """Return the sums before the segments, and go on to those after them."""
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
    """The column `state` of rows that begin in these slots, counting time-major over slots and environments: float32
    [rows, size], before the first observation. Empty for policies that carry none."""
    size = trace.state.shape[-1]
    return {"state": trace.state.reshape(-1, size).take(first, axis=0)} if size else {}


def legal_columns(trace: Trace, picks: Mapping[str, Integers]) -> dict[str, Array]:
    """By name, which actions were legal in the observations picked, counting time-major over slots and environments:
    bool [*picks.shape, actions]. Empty where environments do not say so."""
    if not trace.keeps_legal:
        return {}
    legal = trace.legal.reshape(-1, trace.legal.shape[-1])
    return {name: legal.take(picked, axis=0) for name, picked in picks.items()}


def _by_env(values: Array) -> Array:
    """[time, env, …] as [env, time, …], in memory of its own."""
    return np.array(values.swapaxes(0, 1), order="C")
