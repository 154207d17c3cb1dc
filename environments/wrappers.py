"""Masks inside observations, as in PettingZoo, moved to `info`."""

# gymnasium's spaces are generic without bounds: isinstance leaves pyright with a Dict of unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.lanes import ParallelEnv
from remuda.environments.legal_actions import ACTION_MASK, components_of, legal_of_mask
from remuda.environments.spaces import Array, Space, leaves


def observes_mask(observation: Space, action: Space) -> bool:
    """Return True if observations are a Dict with a mask of the actions."""
    return isinstance(observation, spaces.Dict) and ACTION_MASK in observation.spaces and bool(components_of(action))


class MaskApart:
    """Takes the mask out of the observations of a space with a mask.

    The rest of an observation stays a Dict; a rest with one entry becomes this entry.
    """

    def __init__(self, observation: Space, action: Space) -> None:
        """Raises UnsupportedSpaceError unless the mask has one number for each action."""
        structure = cast(spaces.Dict, observation)
        self.actions = sum(components_of(action))
        """The numbers of a mask."""
        mask = structure.spaces[ACTION_MASK]
        if sum(math.prod(leaf.shape or ()) for _, leaf in leaves(mask)) != self.actions:
            raise UnsupportedSpaceError(
                f"the part {ACTION_MASK!r} of the observation is {mask}, but it should have one number for each of the "
                f"{self.actions} actions; give it another name if it does not say which actions are legal"
            )
        left = {key: inner for key, inner in structure.spaces.items() if key != ACTION_MASK} or structure.spaces
        self._keys = tuple(left)
        self.space: Space = left[self._keys[0]] if len(left) == 1 else spaces.Dict(left)
        """Space of the rest."""

    def of(self, observation: Any) -> tuple[Any, Any]:
        """Return the rest of an observation, and its mask."""
        mask = observation[ACTION_MASK]
        if len(self._keys) == 1:
            return observation[self._keys[0]], mask
        return {key: observation[key] for key in self._keys}, mask


class MaskToInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Moves the mask of observations into `info`; see MaskApart."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Raises UnsupportedSpaceError unless the mask has one number for each action."""
        super().__init__(env)
        self._apart = MaskApart(env.observation_space, env.action_space)
        self.observation_space = self._apart.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        left, mask = self._apart.of(observation)
        return left, info | {ACTION_MASK: mask}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        left, mask = self._apart.of(observation)
        return left, reward, terminated, truncated, info | {ACTION_MASK: mask}


class MasksToInfos:
    """A ParallelEnv with the masks of its agents moved into `infos`; see MaskToInfo. All other attributes are those of
    the environment."""

    def __init__(self, env: ParallelEnv) -> None:
        """Raises UnsupportedSpaceError unless each mask has one number for each action."""
        self._env = env
        self._apart = {
            agent: MaskApart(env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
            if observes_mask(env.observation_space(agent), env.action_space(agent))
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def observation_space(self, agent: str) -> Space:
        """Without the mask."""
        return self._apart[agent].space if agent in self._apart else self._env.observation_space(agent)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
        """Begin an episode. Agents that come later get a mask with all actions legal, since masks must exist from the
        first reset on."""
        observations, infos = self._env.reset(seed=seed, options=options)
        seen, said = self._apart_of(observations, infos)
        later = {
            agent: {ACTION_MASK: np.ones(apart.actions, np.int8)}
            for agent, apart in self._apart.items()
            if agent not in observations
        }
        return seen, {**said, **later}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[
        Mapping[str, Any], Mapping[str, float], Mapping[str, bool], Mapping[str, bool], Mapping[str, Mapping[str, Any]]
    ]:
        """Take a step."""
        observations, rewards, terminations, truncations, infos = self._env.step(actions)
        seen, said = self._apart_of(observations, infos)
        return seen, rewards, terminations, truncations, said

    def _apart_of(
        self, observations: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        seen, said = dict[str, Any](observations), dict[str, Any](infos)
        for agent in self._apart.keys() & observations.keys():
            seen[agent], mask = self._apart[agent].of(observations[agent])
            said[agent] = {**infos.get(agent, {}), ACTION_MASK: mask}
        return seen, said


def has_parts(space: Space) -> bool:
    """Return True if actions of this space are packed."""
    return isinstance(space, spaces.Dict | spaces.Tuple)


class PackActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes actions as one array of integers, part after part, in the order of the space. Masks have the same order,
    nested like the actions or not."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Raises UnsupportedSpaceError with the name of a part that is not counted."""
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
    """Return a mask as lists in the order of the space; dicts are allowed. A part with None is all legal."""
    if mask is None:
        return np.ones(sum(components_of(space)), np.int8)
    if isinstance(space, spaces.Dict) and isinstance(mask, dict):
        return [_ordered(inner, mask[key]) for key, inner in space.spaces.items()]
    if isinstance(space, spaces.Tuple) and isinstance(mask, tuple | list) and len(mask) == len(space.spaces):
        return [_ordered(inner, part) for inner, part in zip(space.spaces, mask, strict=True)]
    return mask
