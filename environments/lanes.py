"""Agents of a policy in all copies of an environment, and their results of the newest step.

A *group* has the agents of a policy. A *lane* is one agent of a group in one of the copies, with the number
`env * agents + agent`. An environment with one agent has one group with this agent: one lane for each copy.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.legal_actions import Components, Legal, legal_of_each, legal_of_vector
from remuda.environments.spaces import Array, Space, column_layout, nearest_to_zeros


class ParallelEnv(Protocol):
    """PettingZoo's interface: in every step all remaining agents act. The package itself is not needed."""

    @property
    def possible_agents(self) -> Sequence[str]: ...

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

    def observation_space(self, agent: str) -> Space: ...

    def action_space(self, agent: str) -> Space: ...

    def close(self) -> None:
        """Let go of everything."""
        ...


AGENT = "agent"
"""The name of the only agent of a gymnasium environment."""
Bools = NDArray[np.bool_]
Infos = Mapping[str, object]
NO_INFO: Infos = {}


@dataclass(frozen=True)
class Group:
    """Agents of a policy, and their common spaces."""

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


DISCOUNTED_RETURN = "discounted_return"
"""Name of an episode's discounted return among its reported values."""


def of_vector(info: Mapping[str, object], names: Sequence[str], over: NDArray[np.bool_]) -> dict[str, list[float]]:
    """Take the finite numbers in the `info` of a vector's step, for the episodes that are `over` (bool [num_envs]).

    Environments without a number under a name are left out.
    """
    columns = as_columns(info, names, len(over))
    found: dict[str, list[float]] = {}
    for column, name in enumerate(names):
        values = columns[over, column]
        found[name] = values[np.isfinite(values)].tolist()
    return found


def as_columns(info: Mapping[str, object], names: Sequence[str], num_envs: int) -> NDArray[np.float64]:
    """Return the numbers in the `info` of a vector's step, float64 [num_envs, names]; nan without a number."""
    columns = np.full((num_envs, len(names)), np.nan)
    for column, name in enumerate(names):
        values, reported = _numbers(info.get(name), num_envs), _array(info.get(f"_{name}"))
        if values is not None:
            columns[:, column] = values if reported is None else np.where(reported, values, np.nan)
    return columns


def of_single(info: Mapping[str, object], names: Sequence[str]) -> dict[str, float]:
    """Take the finite numbers in the `info` of one environment's last step."""
    found: dict[str, float] = {}
    for name in names:
        value = info.get(name)
        array = _array(value)
        if array is not None and array.ndim == 0:
            value = array.item()
        if isinstance(value, numbers.Real) and math.isfinite(value):
            found[name] = float(value)
    return found


def _numbers(values: object, num_envs: int) -> NDArray[np.float64] | None:
    """Return the values as float64 [num_envs]; None if they are not numbers."""
    array = _array(values)
    if array is None or array.shape != (num_envs,):
        return None
    if array.dtype == object:  # some environments report numbers, others nothing or something else
        return np.array([float(value) if isinstance(value, numbers.Real) else math.nan for value in array])
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def _array(value: object) -> Array | None:
    return cast(Array, value) if isinstance(value, np.ndarray) else None


Vectorization = Literal["native", "sync", "async", "envpool"]


class Copies(Protocol):
    """Steps `num_envs` copies of an environment. After the end of an episode the next step resets the copy, without
    actions (gymnasium's NEXT_STEP)."""

    num_envs: int
    one_agent: bool
    """True if each copy has one lane, with an action in every step except the copy's reset."""
    lanes: tuple[Lanes, ...]
    """Result of the newest step, of each group."""
    begun: Bools
    """[envs]: the newest step was the copy's reset."""
    replaced: Bools
    """[envs]: True if the copy broke in the newest step or reset and was replaced: the step was a reset."""
    any_replaced: bool
    clips_rewards: bool
    """True if learners get rewards clipped to [-1, 1]."""
    vectorization: Vectorization
    """Way of stepping the copies."""

    def reset(self, seeds: Sequence[int] | None) -> None:
        """Reset every copy with its seed; None continues the random streams."""
        ...

    def step(self, actions: Sequence[Array]) -> int:
        """Take a step with the actions [lanes, …] of each group; return the number of copies that took a step without a
        reset."""
        ...

    def tell_legal_actions(self) -> None:
        """Report legal actions from now on."""
        ...

    def close(self) -> None:
        """Close every copy."""
        ...
