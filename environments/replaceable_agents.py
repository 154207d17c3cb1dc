"""An environment with several agents that is made again when it breaks, so that the other copies go on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from remuda.config.errors import NoExit
from remuda.environments.breakages import Breakages
from remuda.environments.faults import Fault, UnusableResultError
from remuda.environments.parallel_env import ParallelEnv
from remuda.environments.replaceable import checked_info, checked_observation, checked_reward, parts_of
from remuda.environments.spaces import Array
from remuda.environments.wrapped_agents import WrappedAgents

_OF_RESET = ("observations", "infos")
_OF_STEP = ("observations", "rewards", "terminations", "truncations", "infos")

Infos = Mapping[str, Mapping[str, Any]]
Step = tuple[Mapping[str, Array], Mapping[str, float], Mapping[str, bool], Mapping[str, bool], Infos]


class ReplaceableAgents(WrappedAgents):
    """A ParallelEnv. If it raises, or returns what cannot be learned from (see ReplaceableEnv), it is closed and made
    again with a fresh seed; the step then is the reset of the new one, and `replaced` says so."""

    def __init__(
        self,
        env: ParallelEnv,
        build: Callable[[], ParallelEnv],
        *,
        index: int,
        name: str,
        broke: Callable[[Fault], None],
    ) -> None:
        """`build` makes each that takes its place; for the others see ReplaceableEnv."""
        super().__init__(env)
        self._build = build
        self._breakages = Breakages(index=index, name=name, broke=broke)
        self._no_exit = NoExit()
        self._open = True
        self.replaced = False
        """In the newest step or reset it broke, and another began an episode in its place."""
        spaces = {agent: env.observation_space(agent) for agent in env.possible_agents}
        self._expected = {agent: (tuple(one.shape or ()), np.dtype(one.dtype)) for agent, one in spaces.items()}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Mapping[str, Array], Infos]:
        """Begin an episode. Raises BrokenEnvironmentError beyond the limits."""
        self.replaced = False
        self._breakages.reset(seed)
        try:
            return self._begun(seed)
        except MemoryError:
            raise  # the process is not to be trusted any more
        except Exception as error:  # anything that the environment raises
            return self._in_its_place(error, None)

    def step(self, actions: dict[str, Any]) -> Step:
        """Take a step, or begin in another environment. Raises BrokenEnvironmentError beyond the limits."""
        self.replaced = False
        self._breakages.step()
        try:
            with self._no_exit:
                returned = parts_of(self._env.step(actions), "PettingZoo", "step", _OF_STEP)
                observations, rewards, terminations, truncations, infos = returned
                seen = self._checked(observations, dict.fromkeys([*actions, *self._env.agents]))
                paid = {agent: _paid(rewards, agent) for agent in actions}
                ends, cut, infos = _flags(terminations), _flags(truncations), _checked_infos(infos)
        except MemoryError:
            raise
        except Exception as error:  # anything that the environment raises
            seen, infos = self._in_its_place(error, [*actions.values()])
            return seen, {}, {}, {}, infos
        self._breakages.good_step()
        return seen, paid, ends, cut, infos

    def close(self) -> None:
        """Close it, once."""
        if self._open:
            self._open = False
            self._env.close()

    def _begun(self, seed: int | None) -> tuple[Mapping[str, Array], Infos]:
        with self._no_exit:
            returned = self._env.reset() if seed is None else self._env.reset(seed=seed)
            observations, infos = parts_of(returned, "PettingZoo", "reset", _OF_RESET)
            there = list(self._env.agents)
            if not there:
                raise UnusableResultError("it has no agents after its reset")
            if missing := [agent for agent in there if agent not in observations]:
                raise UnusableResultError(f"it returned no observation for agent {missing[0]} at its reset")
            return self._checked(observations, there), _checked_infos(infos)

    def _in_its_place(self, error: Exception, actions: object) -> tuple[Mapping[str, Array], Infos]:
        """Close what has broken, and begin an episode in a new one, or in the next if that breaks."""
        self.replaced = True
        return self._breakages.begin_again(error, actions, close=self.close, begin=self._begun_in_another)

    def _begun_in_another(self, seed: int | None) -> tuple[Mapping[str, Array], Infos]:
        with self._no_exit:
            self._env = self._build()
            self._open = True
            if other := set(self._env.possible_agents) ^ set(self._expected):
                raise UnusableResultError(f"made again, only one of the two has an agent {min(other)}")
        self._breakages.reset(None)
        return self._begun(seed)

    def _checked(self, observations: Mapping[str, Any], agents: Collection[str]) -> Mapping[str, Array]:
        """What these agents observe, as far as it was returned. Raises UnusableResultError."""
        seen: dict[str, Array] = {}
        for agent in agents:
            if agent in observations and agent in self._expected:
                try:
                    seen[agent] = checked_observation(observations[agent], *self._expected[agent])
                except UnusableResultError as error:
                    raise UnusableResultError(f"{error} (agent {agent})") from None
        return seen


def _checked_infos(told: object) -> Infos:
    """What was told about each agent, copied. Raises UnusableResultError."""
    infos = dict(checked_info(told))
    for agent, info in infos.items():
        try:
            checked_info(info)
        except UnusableResultError as error:
            raise UnusableResultError(f"{error} (agent {agent})") from None
    return infos


def _flags(told: Mapping[str, Any]) -> Mapping[str, bool]:
    return {agent: bool(flag) for agent, flag in told.items()}


def _paid(rewards: Mapping[str, Any], agent: str) -> float:
    try:
        return checked_reward(rewards.get(agent, 0.0))
    except UnusableResultError as error:
        raise UnusableResultError(f"{error} (agent {agent})") from None
