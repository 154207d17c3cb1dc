"""Copies of an environment with several agents that step together, and what each agent saw of it.

A *group* is the agents whose actions one policy makes. A *lane* is one agent of a group in one of the copies: lane
`env * agents + agent`. So for its policy a group is a vector of environments, in which some stand still: an agent may
leave before the others, and comes back with the next episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.faults import RestartLimit
from remuda.environments.parallel import make_parallel
from remuda.environments.parallel_env import ParallelEnv
from remuda.environments.replaceable_agents import ReplaceableAgents
from remuda.environments.spaces import Array, Space, column_layout, nearest_to_zeros

Bools = NDArray[np.bool_]
Infos = Mapping[str, object]
_NOTHING: Infos = {}


@dataclass(frozen=True)
class Group:
    """Agents of one policy, and the spaces that all of them have."""

    agents: tuple[str, ...]
    observation: Space
    action: Space

    @cached_property
    def absent(self) -> Array:
        """What stands for the observation of an agent that is not there: what its space has nearest to zeros. No policy
        learns from it, but networks read it."""
        return nearest_to_zeros(self.observation)

    @classmethod
    def of(cls, env: ParallelEnv, agents: Sequence[str], *, policy: str = "") -> Group:
        """Raises EnvironmentBuildError if the agents have different spaces, so one policy cannot act for all, or if the
        environment does not have them."""
        there = set(env.possible_agents)
        if missing := [agent for agent in agents if agent not in there]:
            listed = ", ".join(env.possible_agents[:8])
            raise EnvironmentBuildError(f"the environment has no agent {missing[0]}; its agents are {listed}")
        first, named = agents[0], f"policies.{policy}" if policy else "policy"
        for what in ("observation_space", "action_space"):
            known = getattr(env, what)(first)
            other = next((agent for agent in agents if getattr(env, what)(agent) != known), None)
            if other is not None:
                raise EnvironmentBuildError(
                    f"{named} is to act for agents whose {what.replace('_', ' ')}s differ: {first} has {known}, "
                    f"{other} has {getattr(env, what)(other)}; give them different policies"
                )
        return cls(tuple(agents), env.observation_space(first), env.action_space(first))


@dataclass
class Lanes:
    """What the newest step brought for a group. The arrays are overwritten by the next one."""

    group: Group
    observations: Array
    """[lanes, …]: the newest; of an agent that is not there its last one."""
    reward: NDArray[np.float64]
    """[lanes]: 0 for agents that did not act."""
    terminated: Bools
    """[lanes]: the agent acted, and for it the episode terminated."""
    truncated: Bools
    """[lanes]: the agent acted, and for it the episode ended otherwise."""
    live: Bools
    """[lanes]: the agent acts in the next step."""
    infos: list[Infos] = field(default_factory=list["Infos"])
    """Of each lane, with the newest observation."""

    @classmethod
    def empty(cls, group: Group, num_envs: int) -> Lanes:
        """For copies of which none was reset."""
        count = num_envs * len(group.agents)
        shape, dtype = column_layout(group.observation, what="observation", keeps_float64=True)
        observations = np.empty((count, *shape), dtype)
        observations[:] = group.absent
        return cls(
            group,
            observations=observations,
            reward=np.zeros(count),
            terminated=np.zeros(count, np.bool_),
            truncated=np.zeros(count, np.bool_),
            live=np.zeros(count, np.bool_),
            infos=[_NOTHING] * count,
        )

    def __len__(self) -> int:
        return len(self.live)


class Copy(ParallelEnv, Protocol):
    """One copy of the environment, which may be made again where it breaks."""

    @property
    def replaced(self) -> bool:
        """In the newest step or reset it broke, and another began an episode in its place."""
        ...


class AgentsVector:
    """Steps `num_envs` copies of an environment with several agents, one after another in this process.

    A copy whose episode is over is reset by the next step, in which nobody acts (gymnasium's NEXT_STEP).
    """

    def __init__(self, envs: Sequence[Copy], groups: Sequence[Group], *, max_episode_steps: int | None = None) -> None:
        """`max_episode_steps` truncates episodes for all agents."""
        self.num_envs = len(envs)
        self.lanes = tuple(Lanes.empty(group, self.num_envs) for group in groups)
        """Of each group: what the newest step brought."""
        self.begun: Bools = np.zeros(self.num_envs, np.bool_)
        """[envs]: the newest step was the copy's reset."""
        self.replaced: Bools = np.zeros(self.num_envs, np.bool_)
        """[envs]: in the newest step or reset the copy broke, and another began in its place: the step was a reset."""
        self._envs = tuple(envs)
        self._most_steps = max_episode_steps
        self._steps = [0] * self.num_envs
        self._over = [True] * self.num_envs
        self._actors = [_actor(group.action) for group in groups]

    def reset(self, seeds: Sequence[int] | None) -> None:
        """Reset every copy, with a seed for each; None goes on with their random streams."""
        for index in range(self.num_envs):
            self.reset_copy(index, None if seeds is None else seeds[index])
        self.begun[:] = True

    def step(self, actions: Sequence[Array], copies: Sequence[int] | None = None) -> int:
        """Take a step with the actions [lanes, …] of each group, in these copies (None: all); returns how many of them
        took one that was no reset."""
        stepped = 0
        self.begun[:] = self.replaced[:] = False
        for index in range(self.num_envs) if copies is None else copies:
            self.begun[index] = self._over[index]
            if self._over[index]:
                self.reset_copy(index, None)
            else:
                self._step(index, actions)
                self.begun[index] = self.replaced[index]
                stepped += not self.replaced[index]
        return stepped

    def over(self, index: int) -> bool:
        """Whether the episode of a copy is over."""
        return self._over[index]

    def close(self) -> None:
        """Close every copy."""
        for env in self._envs:
            with NoExit():
                env.close()

    def reset_copy(self, index: int, seed: int | None) -> None:
        """Begin another episode in a copy; without a seed its random stream goes on."""
        env = self._envs[index]
        observations, infos = env.reset() if seed is None else env.reset(seed=seed)
        self.replaced[index] = env.replaced
        self._begin(index, observations, infos)

    def _begin(self, index: int, observations: Mapping[str, Any], infos: Mapping[str, Infos]) -> None:
        there = set(self._envs[index].agents)
        self._steps[index], self._over[index] = 0, not there
        for lanes in self.lanes:
            first = index * len(lanes.group.agents)
            for lane, agent in enumerate(lanes.group.agents, first):
                lanes.reward[lane] = 0.0
                lanes.terminated[lane] = lanes.truncated[lane] = False
                lanes.live[lane] = agent in there
                lanes.infos[lane] = infos.get(agent, _NOTHING)
                lanes.observations[lane] = observations[agent] if agent in there else lanes.group.absent

    def _step(self, index: int, actions: Sequence[Array]) -> None:
        env, told = self._envs[index], dict[str, Any]()
        for lanes, acted, of in zip(self.lanes, actions, self._actors, strict=True):
            first = index * len(lanes.group.agents)
            for lane, agent in enumerate(lanes.group.agents, first):
                if lanes.live[lane]:
                    told[agent] = of(acted[lane])
        observations, rewards, terminations, truncations, infos = env.step(told)
        if env.replaced:
            self.replaced[index] = True
            self._begin(index, observations, infos)
            return
        self._steps[index] += 1
        cut, there, goes_on = self._steps[index] == self._most_steps, set(env.agents), False
        for lanes in self.lanes:
            first = index * len(lanes.group.agents)
            for lane, agent in enumerate(lanes.group.agents, first):
                acted_now = agent in told
                over = bool(terminations.get(agent, False)) or bool(truncations.get(agent, False))
                gone = cut or over or agent not in there
                lanes.reward[lane] = rewards.get(agent, 0.0) if acted_now else 0.0
                lanes.terminated[lane] = acted_now and bool(terminations.get(agent, False))
                lanes.truncated[lane] = acted_now and gone and not lanes.terminated[lane]
                lanes.live[lane] = not gone
                goes_on = goes_on or not gone
                if agent in observations and (acted_now or not gone):
                    lanes.observations[lane] = observations[agent]
                lanes.infos[lane] = infos.get(agent, _NOTHING)
        self._over[index] = not goes_on


def make_agents_vector(
    env: EnvConfig,
    assigned: Mapping[str, Sequence[str]],
    *,
    num_envs: int,
    source_dir: str | None,
    broke: Callable[[str], None],
) -> AgentsVector:
    """Build copies of the environment for policies that act for these agents, by name. `broke` gets a text for the log
    about each that is made again. Raises EnvironmentBuildError."""
    envs: list[ParallelEnv] = []
    try:
        for _ in range(num_envs):
            envs.append(make_parallel(env, source_dir=source_dir))
        groups = [Group.of(envs[0], agents, policy=name) for name, agents in assigned.items()]
        for built in envs:
            _check_all_assigned(built, assigned)
        limit, build = RestartLimit(env.restarts_per_hour, broke), partial(make_parallel, env, source_dir=source_dir)
        name = env.id or env.make or ""
        copies = [ReplaceableAgents(one, build, index=at, name=name, broke=limit) for at, one in enumerate(envs)]
        return AgentsVector(copies, groups, max_episode_steps=env.max_episode_steps)
    except BaseException:
        for built in envs:
            with suppress(Exception), NoExit():
                built.close()
        raise


def _check_all_assigned(env: ParallelEnv, assigned: Mapping[str, Sequence[str]]) -> None:
    known = {agent for agents in assigned.values() for agent in agents}
    if other := [agent for agent in env.possible_agents if agent not in known]:
        raise EnvironmentBuildError(
            f"the environment has an agent {other[0]} that it had not when its agents were listed: they have to be "
            "the same in all copies"
        )


def agents_of(env: EnvConfig, *, source_dir: str | None) -> tuple[str, ...]:
    """The agents of an environment. Builds it once. Raises EnvironmentBuildError."""
    built = make_parallel(env, source_dir=source_dir)
    try:
        return tuple(built.possible_agents)
    finally:
        with suppress(Exception), NoExit():
            built.close()


def _actor(space: Space) -> Callable[[Array], object]:
    """From an action of an array to what an environment is told."""
    return int if isinstance(space, spaces.Discrete) else lambda action: action.copy()
