"""Masks that environments with several agents put into observations: given in `infos`, where everything looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from remuda.environments.legal_actions import ACTION_MASK
from remuda.environments.mask_in_observation import MaskApart, observes_mask
from remuda.environments.parallel_env import ParallelEnv
from remuda.environments.spaces import Space
from remuda.environments.wrapped_agents import WrappedAgents

_Infos = Mapping[str, Mapping[str, Any]]


class MasksToInfos(WrappedAgents):
    """A ParallelEnv whose agents observe what is left of a Dict once its mask is taken out; see MaskToInfo."""

    def __init__(self, env: ParallelEnv) -> None:
        """Raises UnsupportedSpaceError where a mask does not have one number for each action."""
        super().__init__(env)
        self._apart = {
            agent: MaskApart(env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
            if observes_mask(env.observation_space(agent), env.action_space(agent))
        }

    def observation_space(self, agent: str) -> Space:
        """Without the mask."""
        return self._apart[agent].space if agent in self._apart else super().observation_space(agent)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
        """Begin an episode. For agents that come later, too, `infos` have a mask, by which all actions are legal: that
        there are masks has to be known from the first reset on."""
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

    def close(self) -> None:
        """Let go of everything."""
        self._env.close()

    def _apart_of(self, observations: Mapping[str, Any], infos: _Infos) -> tuple[dict[str, Any], dict[str, Any]]:
        seen, said = dict[str, Any](observations), dict[str, Any](infos)
        for agent in self._apart.keys() & observations.keys():
            seen[agent], mask = self._apart[agent].of(observations[agent])
            said[agent] = {**infos.get(agent, {}), ACTION_MASK: mask}
        return seen, said
