"""Numbers that environments report at the end of an episode under the names in `env.episode_info`."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from remuda.environments.spaces import Array

DISCOUNTED_RETURN = "discounted_return"
"""The name under which an episode's discounted return stands among what environments report of it."""


def of_vector(info: Mapping[str, object], names: Sequence[str], over: NDArray[np.bool_]) -> dict[str, list[float]]:
    """Take the finite numbers in the `info` of a vector's step, for the episodes that are `over` (bool [num_envs]).

    Environments without a number under a name are left out.
    """
    columns = as_columns(info, names, len(over))
    found: dict[str, list[float]] = {}
    for column, name in enumerate(names):
        values = columns[over, column]
        found[name] = values[np.isfinite(values)].tolist()
    return found


def as_columns(info: Mapping[str, object], names: Sequence[str], num_envs: int) -> NDArray[np.float64]:
    """The numbers in the `info` of a vector's step, float64 [num_envs, names]; nan where there is no number."""
    columns = np.full((num_envs, len(names)), np.nan)
    for column, name in enumerate(names):
        values, reported = _numbers(info.get(name), num_envs), _array(info.get(f"_{name}"))
        if values is not None:
            columns[:, column] = values if reported is None else np.where(reported, values, np.nan)
    return columns


def of_single(info: Mapping[str, object], names: Sequence[str]) -> dict[str, float]:
    """Take the finite numbers in the `info` of one environment's last step."""
    found: dict[str, float] = {}
    for name in names:
        value = info.get(name)
        array = _array(value)
        if array is not None and array.ndim == 0:
            value = array.item()
        if isinstance(value, numbers.Real) and math.isfinite(value):
            found[name] = float(value)
    return found


def _numbers(values: object, num_envs: int) -> NDArray[np.float64] | None:
    """The values as float64 [num_envs]; None if they are not numbers."""
    array = _array(values)
    if array is None or array.shape != (num_envs,):
        return None
    if array.dtype == object:  # some environments report numbers, others nothing or something else
        return np.array([float(value) if isinstance(value, numbers.Real) else math.nan for value in array])
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def _array(value: object) -> Array | None:
    return cast(Array, value) if isinstance(value, np.ndarray) else None
