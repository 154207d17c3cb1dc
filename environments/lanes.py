"""Agents of one policy in all copies of an environment, and their results of the newest step.

A *group* has the agents of one policy. A *lane* is one agent of a group in one of the copies, with the number
`env * agents + agent`. An environment with one agent has one group with this agent: one lane for each copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from remuda.environments.episode_info import of_single, of_vector
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.legal_actions import Components, Legal, legal_of_each, legal_of_vector
from remuda.environments.parallel_env import ParallelEnv
from remuda.environments.spaces import Array, Space, column_layout, nearest_to_zeros

AGENT = "agent"
"""The name of the only agent of a gymnasium environment."""
Bools = NDArray[np.bool_]
Infos = Mapping[str, object]
NO_INFO: Infos = {}


@dataclass(frozen=True)
class Group:
    """Agents of one policy, and their common spaces."""

    agents: tuple[str, ...]
    observation: Space
    action: Space

    @cached_property
    def absent(self) -> Array:
        """Observation of an absent agent: the element of the space nearest to zeros. No policy learns from it, but
        networks read it."""
        return nearest_to_zeros(self.observation)

    @classmethod
    def of(cls, env: ParallelEnv, agents: Sequence[str], *, policy: str = "") -> Group:
        """Raises EnvironmentBuildError if the environment lacks an agent, or if the agents have different spaces, since
        one policy cannot act for all of them."""
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


@dataclass(eq=False)
class Lanes:
    """The result of the newest step for a group. The next step overwrites or replaces the arrays."""

    group: Group
    observations: Array
    """[lanes, …]: newest observation; the last one of an absent agent."""
    reward: NDArray[np.float64]
    """[lanes]: 0 without an action."""
    terminated: Bools
    """[lanes]: True if the agent acted and its episode terminated."""
    truncated: Bools
    """[lanes]: True if the agent acted and its episode ended without terminating."""
    over: Bools
    """[lanes]: the agent does not act in the next step."""
    info: Infos | list[Infos]
    """Info of the newest observations: of a gymnasium vector, or one info for each lane."""
    masked: bool = True
    """False if the info has no masks."""
    life_lost: Bools | None = None
    """[lanes]: True if the learner's episode ended and the game continues; None for games without lives."""

    @classmethod
    def empty(cls, group: Group, num_envs: int) -> Lanes:
        """Return lanes of copies before their first reset."""
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
            over=np.ones(count, np.bool_),
            info=[NO_INFO] * count,
        )

    def __len__(self) -> int:
        return len(self.over)

    def of_copy(self, index: int) -> range:
        """Return the lanes of one copy."""
        count = len(self.group.agents)
        return range(index * count, (index + 1) * count)

    def legal(self, components: Components, lanes: Sequence[int] | None = None) -> Legal | None:
        """Return the legal actions of all lanes, or of the given lanes: bool [lanes, values]; None without masks.
        Raises ValueError for a mask of another shape."""
        if isinstance(self.info, list):
            infos = self.info if lanes is None else [self.info[lane] for lane in lanes]
            return legal_of_each(infos, components=components)
        legal = legal_of_vector(self.info, num_envs=len(self), components=components)
        return legal if legal is None or lanes is None else legal[list(lanes)]

    def reported(self, names: Sequence[str], ended: Bools) -> dict[str, list[float]]:
        """Return the finite numbers reported under these names, in the lanes that `ended` [lanes]."""
        if not isinstance(self.info, list):
            return of_vector(self.info, names, ended)
        found: dict[str, list[float]] = {name: [] for name in names}
        for lane in np.flatnonzero(ended).tolist():
            for name, value in of_single(self.info[lane], names).items():
                found[name].append(value)
        return found
