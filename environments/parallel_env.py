"""The interface of environments in which several agents act at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from remuda.environments.spaces import Space


class ParallelEnv(Protocol):
    """PettingZoo's interface: in each step all agents that are still there act. The package itself is not needed."""

    @property
    def possible_agents(self) -> Sequence[str]:
        """All agents there may ever be."""
        ...

    @property
    def agents(self) -> Sequence[str]:
        """Those that act in the next step; empty once the episode is over. There may be none before the first reset."""
        ...

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
        """Begin an episode; returns observations and infos by agent."""
        ...

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[
        Mapping[str, Any], Mapping[str, float], Mapping[str, bool], Mapping[str, bool], Mapping[str, Mapping[str, Any]]
    ]:
        """Take a step; returns observations, rewards, terminations, truncations and infos by agent."""
        ...

    def observation_space(self, agent: str) -> Space:
        """What the agent sees."""
        ...

    def action_space(self, agent: str) -> Space:
        """What the agent may do."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class WrappedAgents:
    """The part of a ParallelEnv that asks the environment `_env`; a subclass has `reset`, `step` and `close`."""

    def __init__(self, env: ParallelEnv) -> None:
        self._env = env

    @property
    def possible_agents(self) -> Sequence[str]:
        """See ParallelEnv, as all here."""
        return self._env.possible_agents

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the environment says about itself."""
        return getattr(self._env, "metadata", {})

    @property
    def render_mode(self) -> str | None:
        """How it draws itself; None: not at all."""
        return getattr(self._env, "render_mode", None)

    def render(self) -> Any:
        """The present picture. Raises EnvironmentBuildError if the environment draws none."""
        render = getattr(self._env, "render", None)
        return None if render is None else render()

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
