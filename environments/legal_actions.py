"""Legal actions, reported by environments in `info["action_mask"]` as in gymnasium's own environments."""

# gymnasium's spaces are generic without bounds: isinstance leaves pyright with a space of unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from remuda.environments.spaces import Array, Space

ACTION_MASK = "action_mask"
"""Key in `info`: a number for each action of a Discrete space, 0 for an illegal action now. Actions with several
components have a number for each value of each component: in one array, in the order of components, or in an array per
component."""

Legal = NDArray[np.bool_]
Components = tuple[int, ...]
"""Number of values of each component of an action; a mask has one number per value."""


def components_of(space: Space) -> Components:
    """Return the components of an action space: one for Discrete, one per number of MultiDiscrete and MultiBinary, and
    those of all parts for Tuple and Dict. Return None, for no masks, if a part is not counted."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(count) for count in space.nvec.flat)
    if isinstance(space, spaces.MultiBinary):
        return (2,) * math.prod(space.shape)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        parts = [components_of(part) for part in inner]
        return sum(parts, ()) if all(parts) else ()
    return ()


def legal_of_vector(info: Mapping[str, object], *, num_envs: int, components: Components) -> Legal | None:
    """Return bool [num_envs, values]: the legal actions of each environment of a vector, from the `info` of its step or
    reset; None if no environment has a mask. Values of several components stand in one row.

    All actions are legal in an environment without a mask. Raises ValueError for a mask of another shape, or with
    numbers not allowed in masks.
    """
    masks, told = info.get(ACTION_MASK), cast("Legal | None", info.get(f"_{ACTION_MASK}"))
    if not isinstance(masks, np.ndarray):
        return None
    each = cast(Array, masks)
    if each.dtype != object and each.shape == (num_envs, sum(components)):
        legal = _nonzero(each)
        return legal if told is None else legal | ~told[:, None]
    those = range(num_envs) if told is None else np.flatnonzero(told)
    return _legal({int(index): each[index] for index in those}, num_envs, components)


def legal_of_each(infos: Sequence[Mapping[str, object]], *, components: Components) -> Legal | None:
    """Return the legal actions of environments stepped one by one; `infos` are from each environment's newest step or
    reset."""
    masks = {index: info[ACTION_MASK] for index, info in enumerate(infos) if ACTION_MASK in info}
    return _legal(masks, len(infos), components) if masks else None


def legal_of_mask(mask: object, *, components: Components) -> Legal:
    """The same of a single mask: bool [1, values]."""
    return _legal({0: mask}, 1, components)


def without_any(legal: Legal, components: Components) -> NDArray[np.bool_]:
    """Return bool [n]: True for rows of `legal` [n, values] with a component without any legal value."""
    if len(components) == 1:
        none: Legal = ~np.any(legal, axis=1)
        return none
    firsts = np.cumsum((0, *components[:-1]))
    some: Legal = ~np.all(np.logical_or.reduceat(legal, firsts, axis=1), axis=1)
    return some


def sample_legal(space: Space, info: Mapping[str, object]) -> Any:
    """Draw a legal action uniformly, after a step or reset of a single environment with this `info`."""
    components = components_of(space)
    if ACTION_MASK not in info or not components:
        return space.sample()
    legal = legal_of_mask(info[ACTION_MASK], components=components)[0]
    parts = np.split(legal, np.cumsum(components)[:-1])
    drawn = [space.np_random.choice(np.flatnonzero(part)) for part in parts]
    return (np.reshape(drawn, space.shape or ()) + getattr(space, "start", 0)).astype(space.dtype)[()]


def _legal(masks: Mapping[int, object], num_envs: int, components: Components) -> Legal:
    values = sum(components)
    legal = np.ones((num_envs, values), np.bool_)
    for index, mask in masks.items():
        row = _nonzero(_joined(mask))
        if len(components) > 1 and {row.shape} == {(len(components), count) for count in components}:
            row = row.ravel()  # as many values of each
        if row.shape != (values,):
            raise ValueError(
                f"info[{ACTION_MASK!r}] of an environment has shape {row.shape}, not ({values},): it should have one "
                "number for each action"
            )
        legal[index] = row
    return legal


def _nonzero(mask: Array) -> Legal:
    """Return True where a mask is not 0. Refuses negative numbers and NaN: masks made for adding to logits (0 for
    legal, -inf for illegal) would mean the opposite here."""
    if mask.dtype.kind in "if" and mask.size and not mask.min() >= 0:
        raise ValueError(
            f"info[{ACTION_MASK!r}] of an environment has the number {mask.min():g}: it should have 1 for each legal "
            "action and 0 for each other"
        )
    legal: Legal = mask != 0
    return legal


def _joined(mask: object) -> Array:
    """Return a mask as one array, with the parts of tuples and lists in order."""
    if isinstance(mask, tuple | list) and mask:
        return np.concatenate([np.ravel(_joined(part)) for part in cast("Sequence[object]", mask)])
    return np.asarray(mask)
