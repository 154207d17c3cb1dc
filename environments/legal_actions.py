"""Which actions are legal now: what environments put into `info["action_mask"]`, as gymnasium's own do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from remuda.environments.spaces import Array, Space

ACTION_MASK = "action_mask"
"""Key in `info`: one number for each action of a Discrete space, 0 where it is illegal in what is observed now."""

Legal = NDArray[np.bool_]


def actions_of(space: Space) -> int | None:
    """How many actions a mask tells of; None where the space is not Discrete: then there are no masks."""
    return int(space.n) if isinstance(space, spaces.Discrete) else None


def legal_of_vector(info: Mapping[str, object], *, num_envs: int, actions: int) -> Legal | None:
    """Return bool [num_envs, actions]: which actions are legal in each environment of a vector, by the `info` of its
    step or reset; None where no environment says so.

    All are legal in an environment that says nothing. Raises ValueError for a mask of another shape.
    """
    masks, told = info.get(ACTION_MASK), cast("Legal | None", info.get(f"_{ACTION_MASK}"))
    if not isinstance(masks, np.ndarray):
        return None
    each = cast(Array, masks)
    if each.dtype != object and each.shape == (num_envs, actions):
        legal: Legal = each != 0
        return legal if told is None else legal | ~told[:, None]
    those = range(num_envs) if told is None else np.flatnonzero(told)
    return _legal({int(index): each[index] for index in those}, num_envs, actions)


def legal_of_each(infos: Sequence[Mapping[str, object]], *, actions: int) -> Legal | None:
    """The same of environments that are stepped one by one; `infos` are of the newest step or reset of each."""
    masks = {index: info[ACTION_MASK] for index, info in enumerate(infos) if ACTION_MASK in info}
    return _legal(masks, len(infos), actions) if masks else None


def legal_of_mask(mask: object, *, actions: int) -> Legal:
    """The same of a single mask: bool [1, actions]."""
    return _legal({0: mask}, 1, actions)


def sample_legal(space: Space, info: Mapping[str, object]) -> object:
    """Draw an action as `space.sample` does, after a step or reset of a single environment that said `info`: one of
    the legal ones."""
    mask, actions = info.get(ACTION_MASK), actions_of(space)
    if mask is None or actions is None:
        return space.sample()
    return space.sample(legal_of_mask(mask, actions=actions)[0].astype(np.int8))


def without_any(legal: Legal) -> NDArray[np.bool_]:
    """Which rows of `legal` [n, actions] have no legal action: bool [n]."""
    rows: Legal = ~np.any(legal, axis=1)
    return rows


def _legal(masks: Mapping[int, object], num_envs: int, actions: int) -> Legal:
    legal = np.ones((num_envs, actions), np.bool_)
    for index, mask in masks.items():
        row: Legal = np.asarray(mask) != 0
        if row.shape != (actions,):
            raise ValueError(
                f"info[{ACTION_MASK!r}] of an environment has shape {row.shape}, not ({actions},): it should have one "
                "number for each action"
            )
        legal[index] = row
    return legal
