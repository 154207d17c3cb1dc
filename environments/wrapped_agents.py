"""What wrappers of environments with several agents leave as it is."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.environments.parallel_env import ParallelEnv
from remuda.environments.spaces import Space


class WrappedAgents:
    """The part of a ParallelEnv that asks the environment `_env`; a subclass has `reset`, `step` and `close`."""

    def __init__(self, env: ParallelEnv) -> None:
        self._env = env

    @property
    def possible_agents(self) -> Sequence[str]:
        """See ParallelEnv, as all here."""
        return self._env.possible_agents

    @property
    def agents(self) -> Sequence[str]:
        """Those that act in the next step."""
        return self._env.agents

    def observation_space(self, agent: str) -> Space:
        """What the agent sees."""
        return self._env.observation_space(agent)

    def action_space(self, agent: str) -> Space:
        """What the agent may do."""
        return self._env.action_space(agent)
