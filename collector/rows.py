"""Rows of experience from the trace of a vector: steps, segments, sequences and unrolls.

Of images, each distinct frame is stored once: a stack of frames shares all frames but the newest with the stack before,
and consecutive rows share observations. Frames are compared by content alone, so any wrapper behavior at a reset is
stored correctly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remuda.buffer.episodes import END, LANE, OVER, STEP_REWARD, TERMINATED
from remuda.buffer.frames import FRAMES, index_name
from remuda.collector.trace import Bools, Floats, Integers, Trace
from remuda.environments.spaces import Array
from remuda.policy.returns import n_step_windows

_MIN_FRAME_BYTES = 1024
"""Anything smaller is cheaper to copy than to point at."""
_MAX_STACK = 16
"""A first axis longer than this is the height of an image."""


class Rows(Protocol):
    """Makes rows of a trace, in order of time, then of environment.

    Images are frames and indices (remuda.buffer.frames). The column `state` float32 [rows, size] is the state of a
    recurrent policy before the first observation of a row; `legal` bool [rows, …, actions] has the legal actions of
    each observation, if environments report masks.
    """

    @property
    def kept(self) -> int:
        """Slots of time carried over from a chunk to the next."""
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
    value(next_obs). `next_legal` is `legal` of next_obs. `lane`, `end` and `step_reward` are for datasets: see
    remuda.buffer.episodes.
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
            "action": _picked(trace.action_column, first),
            "reward": windows.reward.take(first).astype(np.float32),
            "discount": (self._powers.take(length) * bootstraps).astype(np.float32),
            **legal_columns(trace, {"legal": first, "next_legal": after}),
            **state_column(trace, first),
            **_episode_columns(trace, first),
        }
        if self.kept > 1:
            columns[STEP_REWARD] = trace.reward.take(first).astype(np.float32)
        pending &= ~given
        return columns, int(first[0]) // num_envs if len(first) else end - 1


class SegmentRows:
    """One row per environment: the T slots of the chunk, in order.

    Columns: obs [rows, T + 1, …], action [rows, T, …], reward float32 [rows, T], terminated, done and valid bool [rows,
    T], and the policy's recorded values, like log_prob [rows, T]. An invalid slot is a reset, or time of an absent
    agent or of an older policy: neither counted nor learned from. A row may have invalid slots only. obs[:, t + 1] is
    the true last observation if slot t ended an episode. return_so_far float32 [rows] is the discounted sum of rewards
    of the current episode before the segment (gamma * sum + reward, step by step).
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
            "action": _by_env(trace.action_column[new]),
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


def _episode_columns(trace: Trace, first: Integers) -> dict[str, Array]:
    """Return number of the environment, and the kind of end, of the steps `first`: see remuda.buffer.episodes."""
    over = trace.done.take(first) & trace.over.take(first)
    end = trace.terminated.take(first) * TERMINATED + over * OVER
    return {LANE: (first % trace.num_envs).astype(np.int32), END: end.astype(np.uint8)}


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


class SequenceRows:
    """A row for each environment every `period_slots` slots of time: `slots` slots in order, through the ends of
    episodes.

    Columns: obs [rows, slots + 1, …], action [rows, slots, …], reward float32 [rows, slots], terminated, done and valid
    bool [rows, slots], and the policy's recorded values: see remuda.config.declaration.Sequences. An incomplete
    sequence at the end of the rollout is lost.
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
            "action": _picked(trace.action_column, taken),
            "reward": _picked(trace.reward, taken).astype(np.float32),
            "terminated": _picked(trace.terminated, taken),
            "done": _picked(trace.done, taken),
            "valid": _picked(trace.pending, taken),
            **legal_columns(trace, {"legal": seen}),
            **state_column(trace, first),
        }
        for name, values in trace.recorded.items():
            columns[name] = _picked(values, taken)
        return columns, int(starts[0]) if len(starts) else trace.end - 1


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
    [rows], and the policy's recorded values [rows, K + 1, …]: see remuda.config.declaration.Unrolls. A row waits for W
    steps or the end of its episode.
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
            "action": _picked(trace.recorded.get("action", trace.action_column), taken[:, :acted], missing[:, :acted]),
            "reward": _picked(trace.reward, taken, missing).astype(np.float32),
            "steps": steps[:, 0].astype(np.int32),
            "terminated": trace.terminated.take(taken[:, -1]),
        }
        columns |= state_column(trace, first)
        for name, values in trace.recorded.items():
            if name != "action":
                columns[name] = _picked(values, taken[:, : acted + 1], missing[:, : acted + 1])
        pending &= ~given
        return columns, int(first[0]) // num_envs if len(first) else end - 1


def _picked(values: Array, taken: Integers, missing: Bools | None = None) -> Array:
    """Return `values` [time, env, …] at the indices `taken` [rows, slots], and 0 for `missing` slots."""
    picked = values.reshape(-1, *values.shape[2:]).take(taken, axis=0)
    if missing is not None:
        picked[missing] = 0
    return picked


def observation_columns(observations: Array, picks: Mapping[str, Integers]) -> dict[str, Array]:
    """Return, by name, the observations picked of [time, env, …]; `picks` count time-major over both axes.

    Each column is [*picks.shape, …]. Images (uint8) come as frames and indices instead: see remuda.buffer.frames.
    """
    num_envs, shape = observations.shape[1], observations.shape[2:]
    stack = _stack_axes(shape, observations.dtype)
    if stack is None:
        seen = observations.reshape(-1, *shape)
        return {name: seen.take(picked, axis=0) for name, picked in picks.items()}
    picked = np.concatenate([each.ravel() for each in picks.values()])
    first, end = (int(picked.min()) // num_envs, int(picked.max()) // num_envs + 1) if len(picked) else (0, 0)
    frame, depth = shape[len(stack) :], math.prod(stack)
    origin = _origins(observations[first:end].reshape(end - first, num_envs, depth, math.prod(frame)))
    used, index = np.unique(origin.reshape(-1, depth)[picked - first * num_envs], return_inverse=True)
    seen = observations[first:end].reshape(-1, *frame)
    columns: dict[str, Array] = {FRAMES: seen.take(used, axis=0)}
    ends = np.cumsum([each.size for each in picks.values()])
    parts = np.split(index.reshape(-1, depth).astype(np.int32), ends[:-1])
    for (name, each), part in zip(picks.items(), parts, strict=True):
        columns[index_name(name)] = part.reshape(*each.shape, *stack)
    return columns


def _stack_axes(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> tuple[int, ...] | None:
    """Return the leading axes of a stack of frames, empty for a single image; None for observations without images."""
    if dtype != np.uint8 or len(shape) < 2:
        return None
    if len(shape) > 2 and shape[0] <= _MAX_STACK and math.prod(shape[1:]) >= _MIN_FRAME_BYTES:
        return shape[:1]
    return () if math.prod(shape) >= _MIN_FRAME_BYTES else None


def _origins(stacks: Array) -> Integers:
    """Return, for each frame of `stacks` [time, env, depth, bytes], the index (over all axes) of its first equal frame.

    A stack either advances by one new frame, or starts over; then only repeats of the neighbour (padding of a first
    observation) are old.
    """
    origin: Integers = np.arange(stacks[..., 0].size, dtype=np.int64).reshape(stacks.shape[:3])
    for t in range(len(stacks)):
        begins = np.ones(stacks.shape[1], np.bool_)
        if t:
            begins = (stacks[t, :, :-1] != stacks[t - 1, :, 1:]).any(axis=(1, 2))
            origin[t, ~begins, :-1] = origin[t - 1, ~begins, 1:]
        if begins.any():
            stack, own = stacks[t, begins], origin[t, begins]
            own[:, 1:][(stack[:, 1:] == stack[:, :-1]).all(axis=2)] = 0
            origin[t, begins] = np.maximum.accumulate(own, axis=1)
    return origin
