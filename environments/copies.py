"""Copies of an environment stepped together, as the lanes of the policies that act in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.errors import EnvironmentBuildError, Fault, RestartLimit, unbuildable
from remuda.environments.lanes import AGENT, NO_INFO, Bools, Copies, Group, Infos, Lanes, ParallelEnv, Vectorization
from remuda.environments.make import SingleEnv, make_parallel, make_single
from remuda.environments.probe import Remarks
from remuda.environments.processes import ProcessCopies, StepTimer, choose_processes, time_step
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.spaces import Array, Space
from remuda.environments.vectors import VectorCopies, make_vector


class LocalCopies:
    """Copies stepped one after another in this process. Each copy can also be reset and stepped alone."""

    vectorization: Vectorization = "sync"
    clips_rewards = False

    def __init__(
        self,
        envs: Sequence[ReplaceableEnv] | Sequence[ParallelEnv] | Sequence[SingleEnv],
        groups: Sequence[Group],
        *,
        max_episode_steps: int | None = None,
        one_agent: bool = False,
    ) -> None:
        """`max_episode_steps` truncates episodes for all agents; for one agent see `of_one_agent`."""
        self.num_envs = len(envs)
        self.checked = isinstance(envs[0], ReplaceableEnv)
        """True for environments that are replaced after a failure, and return finite numbers only."""
        self.one_agent = one_agent
        self.lanes = tuple(Lanes.empty(group, self.num_envs) for group in groups)
        self._infos = [[NO_INFO] * len(lanes) for lanes in self.lanes]
        for lanes, infos in zip(self.lanes, self._infos, strict=True):
            lanes.info = infos
        self.begun: Bools = np.zeros(self.num_envs, np.bool_)
        self.replaced: Bools = np.zeros(self.num_envs, np.bool_)
        self.any_replaced = self._marked = False
        self.envs: Sequence[Any] = envs
        self._most_steps = max_episode_steps
        self._steps = [0] * self.num_envs
        self._over = [True] * self.num_envs
        self._actors = [_actor(group.action, one_agent=one_agent) for group in groups]

    @classmethod
    def of_one_agent(cls, envs: Sequence[ReplaceableEnv] | Sequence[SingleEnv]) -> LocalCopies:
        """Return copies of a gymnasium environment, which truncates its episodes itself."""
        group = Group((AGENT,), envs[0].observation_space, envs[0].action_space)
        return cls(envs, [group], one_agent=True)

    def write_to(self, lanes: tuple[Lanes, ...], begun: Bools, replaced: Bools) -> None:
        """Write results into these arrays from now on; a reset comes next."""
        self.lanes, self.begun, self.replaced = lanes, begun, replaced
        for each, infos in zip(lanes, self._infos, strict=True):
            each.info = infos

    def reset(self, seeds: Sequence[int] | None) -> None:
        for index in range(self.num_envs):
            self.reset_copy(index, None if seeds is None else seeds[index])
        self.any_replaced = bool(self.replaced.any())

    def step(self, actions: Sequence[Array], copies: Sequence[int] | None = None) -> int:
        """See Copies; `copies` steps only these."""
        stepped, one = 0, self.one_agent
        if self._marked:
            self.begun[:] = self.replaced[:] = self.any_replaced = self._marked = False
        for index in range(self.num_envs) if copies is None else copies:
            if self._over[index]:
                self.reset_copy(index, None)
                continue
            if self._step_one_agent(index, self._actors[0](actions[0][index])) if one else self._step(index, actions):
                stepped += 1
            else:
                self.begun[index] = self.replaced[index] = self.any_replaced = self._marked = True
        return stepped

    def over(self, index: int) -> bool:
        """True if the episode of a copy is over."""
        return self._over[index]

    def tell_legal_actions(self) -> None:
        """Legal actions are always reported."""

    def close(self) -> None:
        for env in self.envs:
            with NoExit():
                env.close()

    def reset_copy(self, index: int, seed: int | None) -> None:
        """Begin another episode in a copy; without a seed its random stream continues."""
        env, self._marked = self.envs[index], True
        self.begun[index] = True
        observation, info = env.reset() if seed is None else env.reset(seed=seed)
        self.replaced[index] = self.checked and env.replaced
        if self.one_agent:
            self._begin_one_agent(index, observation, info)
        else:
            self._begin(index, observation, info)
        self.any_replaced = self.any_replaced or bool(self.replaced[index])

    def _begin_one_agent(self, index: int, observation: Array, info: Infos) -> None:
        (lanes,) = self.lanes
        lanes.observations[index], self._infos[0][index] = observation, info
        lanes.reward[index] = 0.0
        lanes.terminated[index] = lanes.truncated[index] = lanes.over[index] = self._over[index] = False

    def _step_one_agent(self, index: int, action: Any) -> bool:
        """Step a copy without mappings by agent, which cost as much as a simple environment. Return False if the copy
        broke."""
        env = self.envs[index]
        observation, reward, terminated, truncated, info = env.step(action)
        if self.checked and env.replaced:
            self._begin_one_agent(index, observation, info)
            return False
        lanes = self.lanes[0]
        lanes.observations[index], self._infos[0][index] = observation, info
        lanes.reward[index] = float(reward)
        if terminated or truncated:  # they are False since the reset
            lanes.terminated[index], lanes.truncated[index] = terminated, truncated
            lanes.over[index] = self._over[index] = True
        return True

    def _begin(self, index: int, observations: Mapping[str, Any], infos: Mapping[str, Infos]) -> None:
        there = set(self.envs[index].agents)
        self._steps[index], self._over[index] = 0, not there
        for lanes, own_infos in zip(self.lanes, self._infos, strict=True):
            for lane, agent in zip(lanes.of_copy(index), lanes.group.agents, strict=True):
                lanes.reward[lane] = 0.0
                lanes.terminated[lane] = lanes.truncated[lane] = False
                lanes.over[lane] = agent not in there
                own_infos[lane] = infos.get(agent, NO_INFO)
                lanes.observations[lane] = observations[agent] if agent in there else lanes.group.absent

    def _step(self, index: int, actions: Sequence[Array]) -> bool:
        """Step a copy with several agents. Return False if the copy broke."""
        env, chosen = self.envs[index], dict[str, Any]()
        for lanes, acted, of in zip(self.lanes, actions, self._actors, strict=True):
            for lane, agent in zip(lanes.of_copy(index), lanes.group.agents, strict=True):
                if not lanes.over[lane]:
                    chosen[agent] = of(acted[lane])
        observations, rewards, terminations, truncations, infos = env.step(chosen)
        if self.checked and env.replaced:
            self._begin(index, observations, infos)
            return False
        self._steps[index] += 1
        cut, there, continues = self._steps[index] == self._most_steps, set(env.agents), False
        for lanes, own_infos in zip(self.lanes, self._infos, strict=True):
            for lane, agent in zip(lanes.of_copy(index), lanes.group.agents, strict=True):
                acted_now = agent in chosen
                over = bool(terminations.get(agent, False)) or bool(truncations.get(agent, False))
                gone = cut or over or agent not in there
                lanes.reward[lane] = rewards.get(agent, 0.0) if acted_now else 0.0
                lanes.terminated[lane] = acted_now and bool(terminations.get(agent, False))
                lanes.truncated[lane] = acted_now and gone and not lanes.terminated[lane]
                lanes.over[lane] = gone
                continues = continues or not gone
                if agent in observations and (acted_now or not gone):
                    lanes.observations[lane] = observations[agent]
                own_infos[lane] = infos.get(agent, NO_INFO)
        self._over[index] = not continues
        return True


def make_copies(
    env: EnvConfig,
    assigned: Mapping[str, Sequence[str]],
    *,
    num_envs: int,
    source_dir: str | None,
    sharers: int = 1,
    chosen: Callable[[str], None] = lambda why: None,
    timer: StepTimer = time_step,
    broke: Callable[[str], None] = lambda text: None,
    remark: Callable[[str], None] | None = None,
) -> Copies:
    """Build the copies of a collector, stepped as `env.vectorization` says. All ways but envpool give the same numbers.

    Args:
        env: config of the copies.
        assigned: agents of each policy, by name; ignored for environments with one agent.
        num_envs: number of copies.
        source_dir: folder searched first for the module of env.make.
        sharers: workers that share the cores, for `auto`.
        chosen: receives a line about the choice and its reason.
        timer: measures a step, for `auto`.
        broke: receives a text for the log about each replaced copy, within env.restarts_per_hour.
        remark: receives a text for each kind of misfit between the first observations in this process and their space;
            None: `broke`.

    Raises:
        EnvironmentBuildError: the environment cannot be built, or not stepped in this way.
    """
    if env.kind != "pettingzoo":
        vector = make_vector(env, num_envs=num_envs, source_dir=source_dir, sharers=sharers, chosen=chosen)
        if vector is not None:
            return VectorCopies(vector, str(env.id))
    limit = RestartLimit(env.restarts_per_hour, broke)
    build = partial(local_copies, env, assigned, range(1), source_dir=source_dir)
    try:
        processes, groups = choose_processes(env, build, num_envs=num_envs, sharers=sharers, chosen=chosen, timer=timer)
        if processes:
            named = dict(zip(assigned, groups, strict=True))
            return ProcessCopies(env, named, num_envs=num_envs, processes=processes, source_dir=source_dir, limit=limit)
        remarks = Remarks(str(env.id or env.make), remark or broke)
        return local_copies(env, assigned, range(num_envs), source_dir=source_dir, limit=limit, remarks=remarks)
    except EnvironmentBuildError:
        raise
    except Exception as error:
        raise unbuildable(env, error) from error


def local_copies(
    env: EnvConfig,
    assigned: Mapping[str, Sequence[str]],
    indices: range,
    *,
    source_dir: str | None,
    limit: Callable[[Fault], None] | None = None,
    build: Callable[[], Any] | None = None,
    begins: Callable[[int], None] | None = None,
    remarks: Remarks | None = None,
) -> LocalCopies:
    """Build copies in this process: those with the numbers `indices` among all. Raises EnvironmentBuildError.

    Args:
        assigned: agents of each policy, by name; ignored for environments with one agent.
        limit: receives each fault of a copy, and raises to refuse a replacement; None: steps raise the errors of the
            environment.
        build: makes a copy; None: as in the config.
        begins: see ReplaceableEnv, also for `remarks`.
    """
    several, name = env.kind == "pettingzoo", str(env.id or env.make)
    make: Callable[[], Any] = build or partial(make_parallel if several else make_single, env, source_dir=source_dir)
    envs: list[Any] = []
    try:
        for index in indices:
            if limit is not None:
                envs.append(ReplaceableEnv(make, index=index, name=name, broke=limit, begins=begins, remarks=remarks))
            else:
                envs.append(make())
        if not several:
            return LocalCopies.of_one_agent(envs)
        groups = [Group.of(envs[0], agents, policy=name) for name, agents in assigned.items()]
        for built in envs:
            _check_all_assigned(built, assigned)
        return LocalCopies(envs, groups, max_episode_steps=env.max_episode_steps)
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
    """Return the agents of an environment. Builds the environment once, if its kind allows several. Raises
    EnvironmentBuildError."""
    if env.kind != "pettingzoo":
        return (AGENT,)
    built = make_parallel(env, source_dir=source_dir)
    try:
        return tuple(built.possible_agents)
    finally:
        with suppress(Exception), NoExit():
            built.close()


_copy = methodcaller("copy")


def _actor(space: Space, *, one_agent: bool) -> Callable[[Array], object]:
    """Converts an action of an array to an action of the environment: a copy, since some environments scale or clip
    their action in place, and the row needs the action of the policy."""
    if isinstance(space, spaces.Discrete) and not one_agent:
        return int
    is_number = isinstance(space, spaces.Box) and not space.shape
    return np.array if is_number else _copy  # gymnasium warns of actions of a Box that are no array
