"""Games of PettingZoo whose agents take turns, as environments in which all agents act at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from gymnasium import spaces

from remuda.environments.errors import checked_ends
from remuda.environments.legal_actions import ACTION_MASK
from remuda.environments.spaces import Array, Space


class TurnEnv(Protocol):
    """PettingZoo's interface for agents that take turns (AEC)."""

    possible_agents: Sequence[str]
    agents: Sequence[str]
    agent_selection: str
    rewards: Mapping[str, float]
    terminations: Mapping[str, bool]
    truncations: Mapping[str, bool]
    infos: Mapping[str, Mapping[str, Any]]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode."""
        ...

    def step(self, action: Any) -> None:
        """Take the action of the agent whose turn it is."""
        ...

    def observe(self, agent: str) -> Any:
        """Return the newest observation of an agent."""
        ...

    def observation_space(self, agent: str) -> Space:
        """Observation space of the agent."""
        ...


def takes_turns(env: object) -> bool:
    """Return True for an environment whose agents take turns."""
    return hasattr(env, "agent_iter") and hasattr(env, "observe")


class Turns:
    """A ParallelEnv of a game whose agents take turns. A step is one move; all other agents wait.

    The mask of a waiting agent allows only the first action, which does nothing: a policy with masks learns nothing
    about it. The game ends for all agents together. All other attributes are those of the game.
    """

    def __init__(self, env: TurnEnv) -> None:
        self._env = env
        self.agents: list[str] = []
        """Agents of the next step."""
        self._passes = {agent: _only_first(env.observation_space(agent)) for agent in env.possible_agents}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
        """Begin an episode."""
        self._env.reset(seed=seed, options=options)
        self.agents = [*self._env.agents]
        return self._seen(self.agents), {agent: self._env.infos.get(agent, {}) for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[
        Mapping[str, Any], Mapping[str, float], Mapping[str, bool], Mapping[str, bool], Mapping[str, Mapping[str, Any]]
    ]:
        """Take the move of the agent whose turn it is. Raises UnusableResultError for an end that is neither true nor
        false."""
        env, there = self._env, self.agents
        env.step(actions[env.agent_selection])
        rewards = {agent: float(env.rewards.get(agent, 0.0)) for agent in there}
        ends, cut = checked_ends(env.terminations, env.truncations)
        terminated = any(ends.values())
        over = terminated or any(cut.values())
        seen = self._seen(there)
        infos = {agent: env.infos.get(agent, {}) for agent in there}
        self.agents = [] if over else [*env.agents]
        return seen, rewards, dict.fromkeys(there, terminated), dict.fromkeys(there, over and not terminated), infos

    def _seen(self, agents: Sequence[str]) -> dict[str, Any]:
        seen = {agent: self._env.observe(agent) for agent in agents}
        for agent, mask in self._passes.items():
            if mask is not None and agent in seen and agent != self._env.agent_selection:
                seen[agent] = {**seen[agent], ACTION_MASK: mask}
        return seen


def _only_first(observation: Space) -> Array | None:
    """Return the mask that allows the first action; None for observations without a mask."""
    mask = cast(Any, observation).spaces.get(ACTION_MASK) if isinstance(observation, spaces.Dict) else None
    if not isinstance(mask, spaces.Box):
        return None
    only: Array = np.zeros(mask.shape, np.int8)
    only[0] = 1
    return only
