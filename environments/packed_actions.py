"""Actions that are a Tuple or Dict of counted ones, as one array of integers: all but the environment sees that."""

# gymnasium's spaces are generic without bounds: isinstance leaves pyright with a space of unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.environments.legal_actions import ACTION_MASK, components_of, legal_of_mask
from remuda.environments.packing import leaves
from remuda.environments.spaces import Array, Space
from remuda.environments.unsupported import UnsupportedSpaceError


def has_parts(space: Space) -> bool:
    """Whether actions of this space are packed."""
    return isinstance(space, spaces.Dict | spaces.Tuple)


class PackActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes actions as one array of integers: those of each part after those of the part before, in the order of the
    space. Masks come in the same order, whether the environment nests them as its actions or not."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Raises UnsupportedSpaceError, which names a part that is not counted."""
        super().__init__(env)
        self._structure = env.action_space
        self._components = components_of(self._structure)
        starts: list[int] = []
        for name, leaf in leaves(self._structure):
            components = components_of(leaf)
            if not components:
                raise UnsupportedSpaceError(
                    f"the part {name!r} of the action is {leaf}; supported in a Tuple or Dict are Discrete, "
                    "MultiDiscrete and MultiBinary. Take an action apart with a wrapper in a function of your own "
                    "(env.make)"
                )
            start: Any = getattr(leaf, "start", 0)
            starts += np.broadcast_to(start, leaf.shape or ()).ravel().tolist()
        if not starts:
            raise UnsupportedSpaceError(f"the action space {self._structure} has no parts")
        self.action_space = spaces.MultiDiscrete(np.array(self._components), start=np.array(starts))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._with_flat_mask(info)

    def step(self, action: Array) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment by integers [components]."""
        taken = _nested(self._structure, iter(np.asarray(action)))
        observation, reward, terminated, truncated, info = self.env.step(taken)
        return observation, reward, terminated, truncated, self._with_flat_mask(info)

    def _with_flat_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        if ACTION_MASK not in info:
            return info
        legal = legal_of_mask(_ordered(self._structure, info[ACTION_MASK]), components=self._components)
        return info | {ACTION_MASK: legal[0]}


def _nested(space: Space, integers: Iterator[Any]) -> Any:
    """Build an action of the space of the next integers."""
    if isinstance(space, spaces.Dict):
        return {key: _nested(inner, integers) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nested(inner, integers) for inner in space.spaces)
    shape = space.shape or ()
    own = [next(integers) for _ in range(math.prod(shape))]
    return np.array(own, space.dtype).reshape(shape)[()]


def _ordered(space: Space, mask: Any) -> Any:
    """A mask that may have dicts in it, as lists in the order of the space. All is legal where a part has None."""
    if mask is None:
        return np.ones(sum(components_of(space)), np.int8)
    if isinstance(space, spaces.Dict) and isinstance(mask, dict):
        return [_ordered(inner, mask[key]) for key, inner in space.spaces.items()]
    if isinstance(space, spaces.Tuple) and isinstance(mask, tuple | list) and len(mask) == len(space.spaces):
        return [_ordered(inner, part) for inner, part in zip(space.spaces, mask, strict=True)]
    return mask
