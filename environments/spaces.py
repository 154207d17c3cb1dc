"""Spaces as columns with a dtype, and as JSON."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pydantic import JsonValue

from remuda.environments.errors import UnsupportedSpaceError

Space: TypeAlias = spaces.Space[Any]
Array: TypeAlias = npt.NDArray[Any]


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
