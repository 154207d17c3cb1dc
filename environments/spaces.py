"""Spaces as columns with a dtype, and as JSON; observations of several parts as one row of bytes.

Observations of several parts are those of Dict, Tuple, MultiDiscrete and MultiBinary. Everything between an environment
and a network moves one array per step; the network unpacks the parts (remuda.policy.networks.layouts).
"""

# gymnasium's spaces are generic without bounds: isinstance leaves pyright with a Box or Discrete of unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias, TypeGuard, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pydantic import JsonValue

from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.packed_part import PackedPart

Space: TypeAlias = spaces.Space[Any]
Array: TypeAlias = npt.NDArray[Any]
MOST_PARTS = 200
"""Parts of an observation; more point to a mistake."""


class UnusableActionsError(ValueError):
    """A policy gave no actions for the environments."""


def usable_actions(given: object, shape: tuple[int, ...], dtype: np.dtype[Any], policy: object) -> Array:
    """Return the policy's actions as an array [lanes, …], of the policy's dtype. With others the environments would be
    called broken. Raises UnusableActionsError."""
    actions: Array = np.asarray(given)
    if actions.shape != shape or not np.can_cast(actions.dtype, dtype, "same_kind"):
        raise UnusableActionsError(
            f"{type(policy).__name__} gave actions of shape {actions.shape}, {actions.dtype}: the action space has "
            f"actions of shape {shape}, {dtype}, for {shape[0]} observations"
        )
    return actions


def column_layout(space: Space, *, what: str, keeps_float64: bool = False) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of one element of `space` in a column.

    Integers and booleans keep their dtype. Floats become float32, the dtype of networks, unless `keeps_float64` asks
    for float64 where float32 would round.

    Raises UnsupportedSpaceError for Dict, Tuple, Text and other spaces that are not one array of fixed shape.
    """
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        raise UnsupportedSpaceError(
            f"the {what} space {space} is not one array per step, as Box and Discrete are. "
            "Write your own function (env.make) that returns the environment in a wrapper which makes it one array, "
            "such as gymnasium.wrappers.FlattenObservation"
        )
    if 0 in (space.shape or ()):
        raise UnsupportedSpaceError(f"the {what} space {space} contains no number: give it a shape without 0")
    known = cast(Space, space)
    dtype = np.dtype(known.dtype)
    if dtype.kind == "f":
        dtype = np.dtype(np.float64 if keeps_float64 and dtype.itemsize > 4 else np.float32)
    return tuple(known.shape or ()), dtype


def nearest_to_zeros(space: Space) -> Array:
    """Return the element of a supported space nearest to zeros, as in a column: float64 stays. Raises
    UnsupportedSpaceError."""
    shape, dtype = column_layout(space, what="described", keeps_float64=True)
    zeros: Array = np.zeros(shape, dtype)
    match space:
        case spaces.Box():
            return zeros.clip(space.low, space.high)
        case spaces.Discrete():
            return zeros.clip(space.start, space.start + space.n - 1)
        case spaces.MultiDiscrete():
            start: Array = space.start
            return zeros.clip(start, start + space.nvec - 1)
        case _:
            return zeros


def space_structure(space: Space) -> dict[str, JsonValue]:
    """Describe a supported space as JSON: type, shape, dtype and bounds (infinite bounds as "inf" and "-inf")."""
    shape, _ = column_layout(space, what="described")
    structure: dict[str, JsonValue] = {"type": type(space).__name__, "shape": list(shape), "dtype": str(space.dtype)}
    match space:
        case spaces.Box():
            structure |= {"low": _bound(space.low), "high": _bound(space.high)}
        case spaces.Discrete():
            structure |= {"n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            structure |= {"nvec": cast(JsonValue, space.nvec.tolist())}
            if space.start.any():
                structure |= {"start": cast(JsonValue, space.start.tolist())}
        case _:
            pass
    return structure


def _bound(values: Array) -> JsonValue:
    """Return bounds as one number if all are equal, otherwise as nested lists."""
    uniform = values.size > 0 and bool(np.all(values == values.flat[0]))
    return _json_numbers(values.flat[0].item() if uniform else values.tolist())


def _json_numbers(values: float | list[Any]) -> JsonValue:
    if isinstance(values, list):
        return [_json_numbers(each) for each in values]
    return values if np.isfinite(values) else str(values)


class PackedSpace(spaces.Box):
    """A Box of the bytes of a row, with its parts."""

    def __init__(self, parts: tuple[PackedPart, ...], unused: tuple[str, ...]) -> None:
        """`unused`: names of text parts, which no network here reads."""
        size = parts[-1].offset + parts[-1].bytes
        super().__init__(0, 255, (size,), np.uint8)
        self.parts = parts
        self.unused = unused

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, PackedSpace) and other.parts == self.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        named = ", ".join(f"{part.name}: {part.dtype}{list(part.shape)}" for part in self.parts)
        return f"PackedSpace({named})"


def is_structured(space: Space) -> bool:
    """Return True if observations of this space are packed."""
    return isinstance(space, spaces.Dict | spaces.Tuple | spaces.MultiDiscrete | spaces.MultiBinary)


def packed_space(space: Space) -> PackedSpace:
    """Lay out the row of bytes of a structured space. Raises UnsupportedSpaceError with the name of the part."""
    parts: list[PackedPart] = []
    unused: list[str] = []
    end = 0
    for name, leaf in leaves(space):
        if leaf.dtype is not None and np.dtype(leaf.dtype).kind == "U":  # Text, and Minigrid's space of missions
            unused.append(name)
            continue
        part = replace(_part(name, leaf), offset=end)
        parts.append(part)
        end += part.bytes
    names = [part.name for part in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UnsupportedSpaceError(
            f"the observation space {space} has several parts named {', '.join(twice)}: names are keys joined by dots; "
            "rename a key"
        )
    if not parts or len(parts) > MOST_PARTS:
        raise UnsupportedSpaceError(
            f"the observation space {space} has {len(parts)} parts that networks can read; there should be one at "
            f"least, and at most {MOST_PARTS}"
        )
    return PackedSpace(tuple(parts), tuple(unused))


class PackObservations(gymnasium.ObservationWrapper[Array, Any, Any]):
    """Gives the observations of an environment as rows of bytes, uint8 [bytes]."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Raises UnsupportedSpaceError."""
        super().__init__(env)
        self._structure = env.observation_space
        self._packed = packed_space(self._structure)
        self.observation_space = self._packed

    def observation(self, observation: Any) -> Array:
        """Pack an observation. Raises ValueError with the name of a part that contradicts its space."""
        row = np.empty(self._packed.shape, np.uint8)
        leaves = dict(_values(self._structure, observation, ()))
        for part in self._packed.parts:
            array = np.asarray(leaves[part.name])
            if array.shape != part.shape:
                raise ValueError(f"{_named(part)} has shape {array.shape}, and its space says {part.shape}")
            row[part.offset : part.offset + part.bytes] = np.frombuffer(_packed(part, array).tobytes(), np.uint8)
        return row


def unpacked(space: PackedSpace, rows: Array) -> dict[str, Array]:
    """Return the parts of rows [n, bytes] by name, each [n, *shape]."""
    return {part.name: part.of(rows) for part in space.parts}


def packs(space: Space) -> TypeGuard[PackedSpace]:
    """Return True for a space of packed observations."""
    return isinstance(space, PackedSpace)


def leaves(space: Space, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Space]]:
    """Yield the parts of a Dict or Tuple, nested parts included, each with its name: keys and
    positions joined by dots."""
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from leaves(inner, (*path, str(key)))
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from leaves(inner, (*path, str(index)))
    else:
        yield ".".join(path), space


def _values(space: Space, value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _values(inner, value[key], (*path, str(key)))
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from _values(inner, value[index], (*path, str(index)))
    else:
        yield ".".join(path), value


def _part(name: str, space: Space) -> PackedPart:
    """Describe one array, at offset 0. Raises UnsupportedSpaceError."""
    if isinstance(space, spaces.Discrete):
        return PackedPart(name, 0, (), "int64", counts=(int(space.n),), starts=(int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (tuple(int(one) for one in side.flat) for side in (space.nvec, space.start))
        return PackedPart(name, 0, tuple(space.nvec.shape), "int64", counts=counts, starts=starts)
    if isinstance(space, spaces.MultiBinary):
        return PackedPart(name, 0, tuple(space.shape), "bool", 0.0, 1.0)  # bytes in rows would be an image
    if isinstance(space, spaces.Box) and space.dtype.kind in "fiub" and 0 not in space.shape:
        low, high = float(np.min(space.low)), float(np.max(space.high))
        dtype = "float32" if space.dtype.kind == "f" else str(space.dtype)
        bounds = (low if np.isfinite(low) else None, high if np.isfinite(high) else None)
        return PackedPart(name, 0, tuple(space.shape), dtype, *bounds)
    raise UnsupportedSpaceError(
        f"the part {name!r} of the observation is {space}, which no network here reads; supported are Box, Discrete, "
        "MultiDiscrete, MultiBinary, and Dict and Tuple of them. Leave it out with a wrapper in a function of your own "
        "(env.make)"
    )


def _packed(part: PackedPart, array: Array) -> Array:
    """Return the part in the form read by networks. Raises ValueError for values outside the part's space."""
    with np.errstate(over="ignore"):
        packed = array.astype(part.dtype)
    if packed.dtype.kind == "f" and not np.isfinite(packed).all():
        raise ValueError(f"{_named(part)} is {array.tolist()}, which is not finite as {part.dtype}")
    if part.counts:
        places = packed.reshape(-1) - np.array(part.starts)
        if not ((places >= 0) & (places < np.array(part.counts))).all():
            raise ValueError(f"{_named(part)} is {packed.tolist()}, which is outside its space")
    return packed


def _named(part: PackedPart) -> str:
    return f"the part {part.name!r} of the observation" if part.name else "the observation"
