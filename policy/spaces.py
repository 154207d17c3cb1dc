"""Descriptions of an environment's spaces for algorithms, as plain data for checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from remuda.config.algorithms.base import Actions
from remuda.config.algorithms.registry import BUILT_IN
from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.packed_part import PackedPart

if TYPE_CHECKING:
    import gymnasium

_OBSERVATIONS = "Box of numbers or booleans (one axis at least, none of them empty), Discrete"
_ACTIONS = "Discrete, MultiDiscrete, MultiBinary, Tuple and Dict of these, Box of floats"

Numbers = Literal["float32", "float64"]
"""dtype of numeric observations, by numpy's name."""
OutputName = Literal["q_values", "logits", "action_mean", "squashed_gaussian", "unit_action"]
"""Meaning of a policy network's outputs."""


@dataclass(frozen=True)
class ObservationSpec:
    """A single environment's observations: a Box's, or the `n` values of a Discrete space."""

    shape: tuple[int, ...]
    dtype: str
    """numpy's name, for instance float32."""
    low: float | None = None
    """Least value any entry may take; null where some entry is unbounded or the space is Discrete."""
    high: float | None = None
    """Largest value any entry may take; null as for `low`."""
    n: int | None = None
    """Number of values of a Discrete space; null for a Box."""
    start: int = 0
    """Least value of a Discrete space."""
    parts: tuple[PackedPart, ...] = ()
    """Parts of a Dict, Tuple, MultiDiscrete or MultiBinary space, whose observations are rows of bytes. Empty for other
    spaces."""

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> ObservationSpec:
        """Describe a single (not batched) observation space. Raises UnsupportedSpaceError."""
        from gymnasium.spaces import Box, Discrete  # not above: the coordinator imports this module too

        from remuda.environments.spaces import packs

        if packs(space):
            return cls(tuple(space.shape), str(space.dtype), parts=space.parts)
        if isinstance(space, Discrete):
            return cls((), str(space.dtype), n=int(space.n), start=int(space.start))
        if isinstance(space, Box) and space.dtype.kind in "fiub" and space.shape and 0 not in space.shape:
            low, high = float(np.min(space.low)), float(np.max(space.high))
            return cls(tuple(space.shape), str(space.dtype), _finite(low), _finite(high))
        text = f"observation space {_shown(space)} is not supported; supported: {_OBSERVATIONS}"
        if isinstance(space, Box) and not space.shape:
            text += ". Wrap the environment in gymnasium.wrappers.FlattenObservation, for an array of one number"
        raise UnsupportedSpaceError(text)

    @property
    def features(self) -> int:
        """Number of inputs of a network per observation. Raises UnsupportedSpaceError for observations with several
        parts: use InputLayout for those."""
        if self.parts:
            raise UnsupportedSpaceError(
                f"observations of several parts ({', '.join(part.name for part in self.parts)}) are not supported by "
                f"this algorithm; supported: {_OBSERVATIONS}"
            )
        return math.prod(self.shape) if self.n is None else self.n

    @property
    def by_part(self) -> dict[str, ObservationSpec]:
        """Each part of several as observations of its own, by name, as encoders get the part; counted parts are one-hot
        rows."""
        return {
            part.name: ObservationSpec((sum(part.counts),), "float32")
            if part.counts
            else ObservationSpec(part.shape, part.dtype, part.low, part.high)
            for part in self.parts
        }

    @property
    def of_dataset(self) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of an observation in a dataset. Raises UnsupportedSpaceError for rows of bytes with several
        parts: a dataset does not tell the places of the parts."""
        if any(part.name for part in self.parts):
            names = ", ".join(part.name for part in self.parts)
            raise UnsupportedSpaceError(f"observations of several parts ({names}) cannot be learned from a dataset yet")
        return self.shape, self.dtype

    @property
    def is_image(self) -> bool:
        """Read by convolutions: bytes of two to four axes, or booleans of three or four."""
        axes = {"uint8": (2, 3, 4), "bool": (3, 4)}.get(self.dtype, ())
        return self.n is None and not self.parts and len(self.shape) in axes

    @property
    def image_axes(self) -> tuple[int, ...]:
        """Axes of an image in the order of `encode`.

        The two neighbouring axes with the largest area are height and width, and come last; among equal areas, the
        first. All other axes are channels, for instance colours and stacked frames. Three axes keep their order.
        """
        axes = range(len(self.shape))
        if len(axes) == 3:
            return tuple(axes)
        top = max(axes[:-1], key=lambda axis: self.shape[axis] * self.shape[axis + 1])
        return (*(axis for axis in axes if axis not in (top, top + 1)), top, top + 1)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Sizes of an image's three axes as encoded."""
        *channels, height, width = (self.shape[axis] for axis in self.image_axes)
        return math.prod(channels), height, width

    @property
    def channels_last(self) -> bool:
        """True if an encoded image has its channels (for instance colours) in the last axis, False for the first axis
        (stacked frames). The shorter axis holds the channels; of equal axes the last, as in MinAtar's 10x10x10."""
        return len(self.shape) == 3 and self.shape[2] <= self.shape[0]

    @property
    def scale(self) -> float:
        """Factor that maps bytes outside images to 0 … 1; 1 for other numbers."""
        return 1.0 / (self.high or 1.0) if self.n is None and not self.parts and self.dtype == "uint8" else 1.0

    def numbers(self, *, normalised: bool) -> Numbers:
        """dtype for `encode`: float32, which networks read.

        Observations that are `normalised` afterwards stay float64 if float32 would round them: near 1e9 it represents
        only every 64th number, so differences must stay exact until the mean is subtracted.
        """
        rounded = self.n is None and not np.can_cast(self.dtype, np.float32)
        return "float64" if normalised and rounded else "float32"

    def example(self, number: int) -> np.ndarray:
        """Make example observations [number, *shape]: zeros, or the least values of Discrete spaces."""
        if not self.parts:
            return np.full((number, *self.shape), self.start, self.dtype)
        rows = np.zeros((number, *self.shape), self.dtype)
        for part in self.parts:
            starts = np.array(part.starts or (0,) * math.prod(part.shape), part.dtype)
            rows[:, part.offset : part.offset + part.bytes] = np.frombuffer(starts.tobytes(), np.uint8)
        return rows

    def encode(self, observations: np.ndarray, numbers: Numbers = "float32") -> np.ndarray:
        """Turn [n, *shape] into [n, features], flattened or one-hot. Images keep three axes (see `image_axes`).

        Numbers become `numbers` (dtype), one-hot rows are float32. Numbers of that dtype and images of three axes are
        not copied. Rows of bytes with several parts stay unchanged for PartsTrunk. Raises ValueError for another shape.
        """
        if observations.shape[1:] != self.shape:
            raise ValueError(
                f"observations have shape {observations.shape}, not (n, {', '.join(map(str, self.shape))})"
            )
        if self.parts:
            return observations
        if self.is_image:
            ordered = observations.transpose(0, *(axis + 1 for axis in self.image_axes))
            return observations if len(self.shape) == 3 else ordered.reshape(-1, *self.image_shape)
        if self.n is None:
            flat = observations.reshape(len(observations), self.features).astype(numbers, copy=False)
            return flat if self.scale == 1.0 else flat * np.float32(self.scale)
        encoded = np.zeros((len(observations), self.n), np.float32)
        encoded[np.arange(len(observations)), observations - self.start] = 1.0
        return encoded


@dataclass(frozen=True)
class ActionSpec:
    """A single environment's actions: the integers start … start + n - 1, several integers, or a Box of floats."""

    n: int | None
    """Number of values of a Discrete space; null for other spaces."""
    start: int = 0
    dtype: str = "int64"
    """numpy's name of the environment's dtype."""
    shape: tuple[int, ...] = ()
    low: tuple[float | None, ...] = ()
    """Lower bound of each number of a Box, flattened; null if unbounded."""
    high: tuple[float | None, ...] = ()
    counts: tuple[int, ...] = ()
    """Numbers of values of the integers of a MultiDiscrete or MultiBinary space, flattened; empty for other spaces."""
    starts: tuple[int, ...] = ()
    """Least value of each integer."""

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> ActionSpec:
        """Describe a single (not batched) action space. Raises UnsupportedSpaceError."""
        from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

        if isinstance(space, Discrete):
            return cls(n=int(space.n), start=int(space.start), dtype=str(space.dtype))
        if isinstance(space, MultiDiscrete) and space.nvec.size:
            counts, starts = (tuple(int(one) for one in side.flat) for side in (space.nvec, space.start))
            return cls(None, 0, str(space.dtype), tuple(space.nvec.shape), counts=counts, starts=starts)
        if isinstance(space, MultiBinary) and 0 not in space.shape:
            each = math.prod(space.shape)
            return cls(None, 0, str(space.dtype), tuple(space.shape), counts=(2,) * each, starts=(0,) * each)
        if isinstance(space, Box) and space.dtype.kind == "f" and 0 not in space.shape:
            low, high = (tuple(_finite(float(bound)) for bound in side.flat) for side in (space.low, space.high))
            return cls(None, 0, str(space.dtype), tuple(space.shape), low, high)
        raise UnsupportedSpaceError(f"action space {_shown(space)} is not supported; supported: {_ACTIONS}")

    @property
    def text(self) -> str:
        """The space for people, as gymnasium shows spaces: Discrete(4), MultiDiscrete([3, 2]), Box(-1, 1, (2,))."""
        if self.n is not None:
            return f"Discrete({self.n}, start={self.start})" if self.start else f"Discrete({self.n})"
        if self.counts:
            starts = f", start={list(self.starts)}" if any(self.starts) else ""
            return _cut(f"MultiDiscrete({list(self.counts)}{starts})")
        return _cut(f"Box({_bounds_text(self.low, '-inf')}, {_bounds_text(self.high, 'inf')}, {self.shape})")

    def means_the_same(self, other: ActionSpec) -> bool:
        """True if both have the same shape, the same counted values, and the same bounds of numbers where both spaces
        are bounded."""
        if (self.shape, self.components) != (other.shape, other.components):
            return False
        if (self.start, self.starts) != (other.start, other.starts):
            return False
        pairs = zip((*self.low, *self.high), (*other.low, *other.high), strict=True)
        return all(own is None or there is None or np.float32(own) == np.float32(there) for own, there in pairs)

    def has(self, actions: np.ndarray) -> bool:
        """True if all counted actions [n, *shape] of rows are values of the space; always True for a Box."""
        if self.is_box:
            return True
        indices = self.indices(actions)
        return bool((indices >= 0).all() and (indices < np.array(self.counts or self.n)).all())

    @property
    def is_box(self) -> bool:
        """True if actions are a Box of floats."""
        return not self.components

    @property
    def components(self) -> tuple[int, ...]:
        """Number of values of every counted component of an action: a single component for Discrete, () for a Box."""
        return self.counts if self.n is None else (self.n,)

    @property
    def outputs(self) -> int:
        """Number of outputs of a policy network per observation: a logit per value (in the order of the components), or
        a mean per number of the Box."""
        return math.prod(self.shape) if self.is_box else sum(self.components)

    def counted(self, *, by: str) -> int:
        """Number of values of a Discrete space. Raises UnsupportedSpaceError for other spaces, with the name of the
        algorithm (`by`)."""
        if self.n is None:
            raise self._unsupported(by, "Discrete")
        return self.n

    @property
    def is_bounded(self) -> bool:
        """True for a Box with finite bounds, the lower below the upper, for every number."""
        bounds = zip(self.low, self.high, strict=True)
        return self.is_box and all(low is not None and high is not None and low < high for low, high in bounds)

    def bounded(self, *, by: str, supported: str = "Box") -> UnitBox:
        """Return the bounded Box. Raises UnsupportedSpaceError if a number is unbounded, with the name of the algorithm
        (`by`) and its `supported` spaces."""
        if not self.is_box:
            raise self._unsupported(by, supported)
        if not self.is_bounded:
            raise UnsupportedSpaceError(
                f"action space Box{self.shape} is not supported by {by}, since some number has no finite bounds that "
                "differ: give the space such bounds by gymnasium.wrappers.TransformAction, with a function from "
                "actions of the new space to actions of the old"
            )
        return _unit_box(self)

    def _unsupported(self, by: str, supported: str) -> UnsupportedSpaceError:
        kind: Actions = "MultiDiscrete" if self.counts else "Box" if self.is_box else "Discrete"
        size = f"({list(self.counts) if self.counts else self.n})" if not self.is_box else self.shape
        *others, last = [name for name, one in BUILT_IN.items() if kind in one.settings.acts_in]
        instead = f"Set policy.type to {', '.join(others)} or {last}, which take it"
        one_action = ", or make it one Discrete action by a wrapper" if self.counts else ""
        return UnsupportedSpaceError(
            f"action space {kind}{size} is not supported by {by}; supported: {supported}. {instead}{one_action}"
        )

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Turn a policy's choices into actions for the environment.

        Discrete: adds the start to indices [n]. Several integers: indices [n, components] become [n, *shape]. Box:
        numbers float32 [n, outputs] are clipped to the bounds, [n, *shape].
        """
        if not self.is_box:
            numbers: np.ndarray = actions + (self.start if self.n is not None else np.array(self.starts))
            return numbers.astype(self.dtype, copy=False).reshape(len(actions), *self.shape)
        low, high = _limits(self.low, -math.inf, self.dtype), _limits(self.high, math.inf, self.dtype)
        # Clipped last: what is at most 0.2 as float32 may be more as float64.
        clipped: np.ndarray = np.clip(actions.astype(self.dtype, copy=False), low, high)
        return clipped.reshape(len(actions), *self.shape)

    def indices(self, actions: np.ndarray) -> np.ndarray:
        """Turn counted actions [n, *shape] of rows into indices: int64 [n], or [n, components] for several integers."""
        if self.n is not None:
            return actions.astype(np.int64, copy=False) - self.start
        numbers: np.ndarray = actions.reshape(len(actions), -1).astype(np.int64, copy=False) - np.array(self.starts)
        return numbers


class UnitBox:
    """A bounded Box of actions, for algorithms with actions in -1 … 1."""

    def __init__(self, action: ActionSpec) -> None:
        """`action` is bounded; see ActionSpec.bounded."""
        self._action = action
        low, high = (np.array(side, np.float64) for side in (action.low, action.high))
        self.center: np.ndarray = (0.5 * (low + high)).astype(np.float32)
        """float32 [outputs]: the action for 0."""
        self.half: np.ndarray = (0.5 * (high - low)).astype(np.float32)
        """float32 [outputs]: the action for 1, minus `center`."""

    def to_environment(self, units: np.ndarray) -> np.ndarray:
        """Map numbers in -1 … 1, float32 [n, outputs], to actions for the environment."""
        return self._action.to_environment(units * self.half + self.center)

    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """Map actions [n, …] of rows to numbers in -1 … 1: float32 [n, outputs]."""
        flat = actions.reshape(len(actions), self._action.outputs).astype(np.float32, copy=False)
        units: np.ndarray = (flat - self.center) / self.half
        return units


_unit_box = cache(UnitBox)


@cache
def _limits(bounds: tuple[float | None, ...], unbounded: float, dtype: str) -> np.ndarray:
    return np.array([unbounded if bound is None else bound for bound in bounds], dtype)


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _shown(space: gymnasium.Space[Any]) -> str:
    return _cut(repr(space))


def _bounds_text(bounds: tuple[float | None, ...], unbounded: str) -> str:
    """Return one number if all are equal."""
    texts = [unbounded if bound is None else f"{bound:g}" for bound in bounds]
    return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
