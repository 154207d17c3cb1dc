"""Checks, before anything is started, that an experiment's environments can be built and fit one policy."""

from __future__ import annotations

from dataclasses import replace

from remuda.config.current import evaluated, kwargs_of_stage, on_task
from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.lanes import Group
from remuda.environments.make import make_parallel, make_single
from remuda.environments.packing import packs
from remuda.environments.spaces import Space, space_structure


def check_environment(config: ExperimentConfig) -> tuple[Space, Space]:
    """Build one environment and close it; return its observation and action space. With several agents, return the
    spaces common to all of `env.agents`. Raises EnvironmentBuildError."""
    if config.env.kind == "pettingzoo":
        return _check_agents(config)
    env = make_single(config.env, source_dir=config.source_dir)
    try:
        return env.observation_space, env.action_space
    finally:
        with NoExit():
            env.close()


def check_tasks(config: ExperimentConfig, spaces: tuple[Space, Space]) -> None:
    """Build and close the environments of all later tasks and of evaluations; each must fit a policy of these spaces.
    Raises EnvironmentBuildError."""
    for stage in range(len(config.env.schedule) + 1):
        at = on_task(config, kwargs_of_stage(config, stage))
        if stage:
            require_same(f"env.schedule[{stage - 1}]", spaces, check_environment(at))
        check_evaluated(at, spaces)


def check_evaluated(config: ExperimentConfig, spaces: tuple[Space, Space]) -> None:
    """Build and close a separate environment of evaluations, which must fit a policy of these spaces. Raises
    EnvironmentBuildError."""
    if config.evaluator.env is not None:
        require_same("evaluator.env", spaces, check_environment(evaluated(config)))


def require_same(setting: str, policy: tuple[Space, Space], other: tuple[Space, Space]) -> None:
    """Raise EnvironmentBuildError unless a policy with the spaces `policy` (observation, action) can act in the
    environment of `setting`, with the spaces `other`. Bounds of observations may differ."""
    for what, own, there in zip(("observation", "action"), policy, other, strict=True):
        if _form(what, own) != _form(what, there):
            raise EnvironmentBuildError(
                f"{setting}: its {what} space is {there}, and the policy acts in an environment with {own}: these have "
                "to be the same in all tasks and in evaluations"
            )


def _form(what: str, space: Space) -> object:
    described = space_structure(space)
    bounds = ("low", "high") if what == "observation" else ()
    parts = [replace(part, low=None, high=None) for part in space.parts] if packs(space) else []
    return {key: value for key, value in described.items() if key not in bounds}, parts


def _check_agents(config: ExperimentConfig) -> tuple[Space, Space]:
    env = make_parallel(config.env, source_dir=config.source_dir)
    try:
        group = Group.of(env, config.env.agents)
        return group.observation, group.action
    finally:
        with NoExit():
            env.close()
