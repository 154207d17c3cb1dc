"""Masks that environments put into their observations, as PettingZoo's do: given in `info`, where everything looks."""

# gymnasium's spaces are generic without bounds: isinstance leaves pyright with a Dict of unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import Any, cast

import gymnasium
from gymnasium import spaces

from remuda.environments.legal_actions import ACTION_MASK, components_of
from remuda.environments.packing import leaves
from remuda.environments.spaces import Space
from remuda.environments.unsupported import UnsupportedSpaceError


def observes_mask(observation: Space, action: Space) -> bool:
    """Whether observations are a Dict with a mask of the actions."""
    return isinstance(observation, spaces.Dict) and ACTION_MASK in observation.spaces and bool(components_of(action))


class MaskToInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes the mask out of the observations of an environment that `observes_mask`, and puts it into `info`.

    What is left of an observation stays a Dict; if that has one entry, the entry alone is the observation.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Raises UnsupportedSpaceError where the mask does not have one number for each action."""
        super().__init__(env)
        structure, actions = cast(spaces.Dict, env.observation_space), sum(components_of(env.action_space))
        mask = structure.spaces[ACTION_MASK]
        if sum(math.prod(leaf.shape or ()) for _, leaf in leaves(mask)) != actions:
            raise UnsupportedSpaceError(
                f"the part {ACTION_MASK!r} of the observation is {mask}, but it should have one number for each of the "
                f"{actions} actions; give it another name if it does not say which actions are legal"
            )
        left = {key: inner for key, inner in structure.spaces.items() if key != ACTION_MASK} or structure.spaces
        self._keys = tuple(left)
        self.observation_space = left[self._keys[0]] if len(left) == 1 else spaces.Dict(left)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._left(observation), info | {ACTION_MASK: observation[ACTION_MASK]}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        said = info | {ACTION_MASK: observation[ACTION_MASK]}
        return self._left(observation), reward, terminated, truncated, said

    def _left(self, observation: Any) -> Any:
        if len(self._keys) == 1:
            return observation[self._keys[0]]
        return {key: observation[key] for key in self._keys}
