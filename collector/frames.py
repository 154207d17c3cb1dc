"""Observations as columns; of images, each distinct frame once.

A stack of frames shares all frames but the newest with the stack before, and consecutive rows share observations.
Frames are compared by content alone, so any wrapper behavior at a reset is stored correctly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from remuda.buffer.frames import FRAMES, index_name
from remuda.collector.trace import Integers
from remuda.environments.spaces import Array

_MIN_FRAME_BYTES = 1024
"""Anything smaller is cheaper to copy than to point at."""
_MAX_STACK = 16
"""A first axis longer than this is the height of an image."""


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
    """Return the leading axes that count frames: one for a stack, none for a single image; None for
    other observations."""
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
