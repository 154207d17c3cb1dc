"""The environments that a collector steps under a lease: a vector of one agent each, or copies with several agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from remuda.collector.agents import AgentsRollout
from remuda.collector.build import make_agents_rollout, make_rollout
from remuda.collector.collecting import Collecting, OneRollout
from remuda.collector.past import PastPlayers
from remuda.collector.rollout import Rollout
from remuda.config.current import on_task
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import AgentsVector, make_agents_vector
from remuda.environments.check import require_same
from remuda.environments.record import record_agents, record_environment
from remuda.environments.seeding import environment_seeds, incarnation_at
from remuda.environments.spaces import Space
from remuda.environments.vectors import Vector, make_vector, single_spaces
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Task

Spaces = tuple[Space, Space]
"""Of observations and of actions."""
Say = Callable[[str], None]


class Environments(Protocol):
    """Built, and not stepped yet. Policies are in the order of their names."""

    @property
    def said(self) -> str:
        """For the log: how they are stepped."""
        ...

    @property
    def spaces(self) -> Sequence[Spaces]:
        """Of each policy."""
        ...

    @property
    def past(self) -> PastPlayers | None:
        """In self-play: which agents older policies play."""
        ...

    def describe(self, folder: RunFolder) -> Sequence[str]:
        """Write what the environment is into the run folder; returns warnings."""
        ...

    def rollout(
        self,
        policies: Sequence[Policy],
        *,
        index: int,
        generation: int,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] = lambda env_steps: None,
        timers: Timers,
    ) -> Collecting:
        """What steps them with these policies; called once. `index` and `generation` say whose random numbers it uses;
        see make_rollout."""
        ...

    def begin(self, task: Task) -> None:
        """Go on at this task: the rollout leaves its episodes, and begins others in new environments, before its next
        chunk. Raises EnvironmentBuildError, also where those do not fit its policies."""
        ...

    def close(self) -> None:
        """Close them."""
        ...


def make_environments(
    config: ExperimentConfig,
    policies: Mapping[str, ExperimentConfig],
    *,
    collectors: int,
    broke: Say,
    remark: Say | None = None,
) -> Environments:
    """Build those of a run. `policies` are the settings of each policy, by name; `collectors` work for the run;
    `broke` and `remark`: see make_vector. Raises EnvironmentBuildError."""
    if config.env.kind == "pettingzoo":
        return _SeveralAgents(config, policies, collectors, broke)
    return _OneAgent(config, collectors, broke, remark)


def _seeds(config: ExperimentConfig, index: int, generation: int, task: Task) -> list[int]:
    incarnation = incarnation_at(generation, task.number)
    return environment_seeds(config.seed, "collector", index, config.env.num_envs, incarnation=incarnation)


class _OneAgent:
    past = None

    def __init__(self, config: ExperimentConfig, collectors: int, broke: Say, remark: Say | None) -> None:
        said: list[str] = []
        self._config, self._collectors, self._broke, self._remark = config, collectors, broke, remark
        self._vector = self._make(config, said.append)
        self._rollout: Rollout | None = None
        self._place = 0, 0
        self.said = " ".join(said)
        self.spaces: Sequence[Spaces] = [single_spaces(self._vector)]

    def _make(self, config: ExperimentConfig, chosen: Say) -> Vector:
        return make_vector(
            config.env,
            num_envs=config.env.num_envs,
            source_dir=config.source_dir,
            sharers=self._collectors,
            chosen=chosen,
            broke=self._broke,
            remark=self._remark,
        )

    def describe(self, folder: RunFolder) -> Sequence[str]:
        return record_environment(folder, self._config, self._vector)

    def rollout(
        self,
        policies: Sequence[Policy],
        *,
        index: int,
        generation: int,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] = lambda env_steps: None,
        timers: Timers,
    ) -> Collecting:
        (policy,) = policies
        self._place = index, generation
        self._rollout = make_rollout(
            self._config,
            self._vector,
            policy,
            index=index,
            collectors=self._collectors,
            generation=generation,
            clock=clock,
            progress=progress,
            timers=timers,
        )
        return OneRollout(self._rollout)

    def begin(self, task: Task) -> None:
        assert self._rollout is not None, "somebody steps them"
        self._vector.close()
        config = on_task(self._config, task.kwargs_json)
        self._vector = self._make(config, lambda why: None)
        require_same(f"task {task.number}", self.spaces[0], single_spaces(self._vector))
        self._rollout.move(self._vector, _seeds(config, *self._place, task))

    def close(self) -> None:
        self._vector.close()


class _SeveralAgents:
    def __init__(
        self, config: ExperimentConfig, policies: Mapping[str, ExperimentConfig], collectors: int, broke: Say
    ) -> None:
        self._config, self._policies, self._collectors, self._broke = config, policies, collectors, broke
        self._vector = self._make(config)
        self._rollout: AgentsRollout | None = None
        self._place = 0, 0
        share, keep = config.self_play.share, config.self_play.keep
        self.past = PastPlayers(self._vector, share, keep) if share else None
        self.spaces = _spaces_of(self._vector)
        self.said = self._told()

    def _make(self, config: ExperimentConfig) -> AgentsVector:
        assigned = {name: own.env.agents for name, own in self._policies.items()}
        env = config.env
        return make_agents_vector(env, assigned, num_envs=env.num_envs, source_dir=config.source_dir, broke=self._broke)

    def _told(self) -> str:
        named = zip(self._policies, self._vector.lanes, strict=True)
        each = "; ".join(f"{f'{name}: ' if name else ''}{', '.join(lanes.group.agents)}" for name, lanes in named)
        return f"environments: {self._vector.num_envs} copies in this process, with the agents {each}"

    def describe(self, folder: RunFolder) -> Sequence[str]:
        return record_agents(folder, config=self._config, vector=self._vector, policies=list(self._policies))

    def rollout(
        self,
        policies: Sequence[Policy],
        *,
        index: int,
        generation: int,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] = lambda env_steps: None,
        timers: Timers,
    ) -> Collecting:
        self._place = index, generation
        self._rollout = make_agents_rollout(
            self._config,
            self._vector,
            list(zip(self._policies.values(), policies, strict=True)),
            index=index,
            collectors=self._collectors,
            past=self.past,
            generation=generation,
            clock=clock,
            progress=progress,
            timers=timers,
        )
        return self._rollout

    def begin(self, task: Task) -> None:
        assert self._rollout is not None, "somebody steps them"
        self._vector.close()
        config = on_task(self._config, task.kwargs_json)
        self._vector = self._make(config)
        for own, there in zip(self.spaces, _spaces_of(self._vector), strict=True):
            require_same(f"task {task.number}", own, there)
        self._rollout.move(self._vector, _seeds(config, *self._place, task))

    def close(self) -> None:
        self._vector.close()


def _spaces_of(vector: AgentsVector) -> Sequence[Spaces]:
    return [(lanes.group.observation, lanes.group.action) for lanes in vector.lanes]
