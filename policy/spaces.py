"""What an algorithm must know of an environment's spaces, as plain data that checkpoints can carry."""

# gymnasium's spaces are generic without bounds: isinstance leaves pyright with a Box or Discrete of unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import gymnasium

_OBSERVATIONS = "Box of numbers or booleans, Discrete"
_ACTIONS = "Discrete"


class UnsupportedSpaceError(ValueError):
    """No algorithm here can work with this space; the message names it and what is supported."""


@dataclass(frozen=True)
class ObservationSpec:
    """A single environment's observations: a Box's, or the `n` values of a Discrete space."""

    shape: tuple[int, ...]
    dtype: str
    """numpy's name, such as float32."""
    low: float | None = None
    """Least value any entry may take; null where some entry is unbounded or the space is Discrete."""
    high: float | None = None
    """Largest value any entry may take; null as for `low`."""
    n: int | None = None
    """Number of values of a Discrete space; null for a Box."""
    start: int = 0
    """Least value of a Discrete space."""

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> ObservationSpec:
        """Describe a single (not batched) observation space. Raises UnsupportedSpaceError."""
        from gymnasium.spaces import Box, Discrete  # not above: the coordinator imports this module too

        if isinstance(space, Discrete):
            return cls((), str(space.dtype), n=int(space.n), start=int(space.start))
        if isinstance(space, Box) and space.dtype.kind in "fiub" and space.shape:
            low, high = float(np.min(space.low)), float(np.max(space.high))
            return cls(tuple(space.shape), str(space.dtype), _finite(low), _finite(high))
        raise UnsupportedSpaceError(f"observation space {_shown(space)} is not supported; supported: {_OBSERVATIONS}")

    @property
    def features(self) -> int:
        """Numbers that a network reads per observation."""
        return math.prod(self.shape) if self.n is None else self.n

    def encode(self, observations: np.ndarray) -> np.ndarray:
        """Turn [n, *shape] into what a network reads: float32 [n, features], flattened or one-hot.

        float32 rows are not copied. Raises ValueError for another shape.
        """
        if observations.shape[1:] != self.shape:
            raise ValueError(
                f"observations have shape {observations.shape}, not (n, {', '.join(map(str, self.shape))})"
            )
        if self.n is None:
            return observations.reshape(len(observations), self.features).astype(np.float32, copy=False)
        encoded = np.zeros((len(observations), self.n), np.float32)
        encoded[np.arange(len(observations)), observations - self.start] = 1.0
        return encoded


@dataclass(frozen=True)
class ActionSpec:
    """A single environment's actions: the integers start … start + n - 1."""

    n: int
    start: int = 0
    dtype: str = "int64"

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> ActionSpec:
        """Describe a single (not batched) action space. Raises UnsupportedSpaceError."""
        from gymnasium.spaces import Discrete

        if isinstance(space, Discrete):
            return cls(n=int(space.n), start=int(space.start), dtype=str(space.dtype))
        raise UnsupportedSpaceError(f"action space {_shown(space)} is not supported; supported: {_ACTIONS}")


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _shown(space: gymnasium.Space[Any]) -> str:
    text = repr(space)
    return text if len(text) <= 200 else f"{text[:200]}…"
