"""Interface of environments with several agents that act at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from remuda.environments.spaces import Space


class ParallelEnv(Protocol):
    """PettingZoo's interface: in each step all remaining agents act. The package itself is not needed."""

    @property
    def possible_agents(self) -> Sequence[str]:
        """All possible agents."""
        ...

    @property
    def agents(self) -> Sequence[str]:
        """Agents of the next step; empty at the end of the episode, and perhaps before the first reset."""
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
        """Observation space of the agent."""
        ...

    def action_space(self, agent: str) -> Space:
        """Action space of the agent."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class WrappedAgents:
    """Base class of wrappers of a ParallelEnv; a subclass has `reset`, `step` and `close`."""

    def __init__(self, env: ParallelEnv) -> None:
        self._env = env

    @property
    def possible_agents(self) -> Sequence[str]:
        """See ParallelEnv, as all here."""
        return self._env.possible_agents

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the environment."""
        return getattr(self._env, "metadata", {})

    @property
    def render_mode(self) -> str | None:
        """Form of drawing; None: no drawing."""
        return getattr(self._env, "render_mode", None)

    def render(self) -> Any:
        """Return the present picture; None without drawing."""
        render = getattr(self._env, "render", None)
        return None if render is None else render()

    @property
    def agents(self) -> Sequence[str]:
        """Agents of the next step."""
        return self._env.agents

    def observation_space(self, agent: str) -> Space:
        """Observation space of the agent."""
        return self._env.observation_space(agent)

    def action_space(self, agent: str) -> Space:
        """Action space of the agent."""
        return self._env.action_space(agent)
