"""The layout of the arrays of one step of a vector in memory that several processes share."""

from __future__ import annotations

import math
from mmap import mmap
from typing import Any

import msgspec
import numpy as np

from remuda.environments.legal_actions import components_of
from remuda.environments.spaces import Array, Space

_ALIGNMENT = 64
"""Bytes of a cache line: no two arrays share one."""


class _Field(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        data_bytes = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return -(-data_bytes // _ALIGNMENT) * _ALIGNMENT


class StepLayout(msgspec.Struct, frozen=True):
    """Dtypes and shapes [num_envs, …] of what goes in and out of a step."""

    observations: _Field
    actions: _Field
    reward: _Field
    terminated: _Field
    truncated: _Field
    episode_info: _Field
    """[num_envs, names]: values of env.episode_info of episodes that have just ended; nan if there is none."""
    legal: _Field
    """[num_envs, values]: which values of the components of actions are legal now."""
    tells_legal: _Field
    """[num_envs]: whether the environment says so. Both are also filled by a reset."""
    wants_legal: _Field
    """[1]: whether anybody reads them."""
    stepping: _Field
    """[num_envs]: at the first environment of each process, which of its environments it is stepping or resetting."""

    @classmethod
    def of(cls, observation: Space, action: Space, *, num_envs: int, episode_info: int = 0) -> StepLayout:
        """The layout for environments with these spaces, which column_layout supports; `episode_info` is the number of
        names in env.episode_info."""
        return cls(
            _field(observation, num_envs),
            _field(action, num_envs),
            _Field("float64", (num_envs,)),
            _Field("bool", (num_envs,)),
            _Field("bool", (num_envs,)),
            _Field("float64", (num_envs, episode_info)),
            _Field("bool", (num_envs, sum(components_of(action)))),
            _Field("bool", (num_envs,)),
            _Field("bool", (1,)),
            _Field("int64", (num_envs,)),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        fields = (self.observations, self.actions, self.reward, self.terminated, self.truncated)
        masks = (self.legal, self.tells_legal, self.wants_legal)
        return sum(field.nbytes for field in (*fields, self.episode_info, *masks, self.stepping))


class SharedStep:
    """The arrays, as views into the memory."""

    def __init__(self, layout: StepLayout, memory: mmap) -> None:
        offset = 0

        def view(field: _Field) -> Array:
            nonlocal offset
            array: Array = np.ndarray(field.shape, np.dtype(field.dtype), memory, offset)
            offset += field.nbytes
            return array

        self.observations, self.actions = view(layout.observations), view(layout.actions)
        self.reward, self.terminated, self.truncated = map(view, (layout.reward, layout.terminated, layout.truncated))
        self.episode_info, self.legal = view(layout.episode_info), view(layout.legal)
        self.tells_legal, self.wants_legal = view(layout.tells_legal), view(layout.wants_legal)
        self.stepping = view(layout.stepping)


def _field(space: Space, num_envs: int) -> _Field:
    dtype: np.dtype[Any] = np.dtype(space.dtype)
    return _Field(str(dtype), (num_envs, *(space.shape or ())))
