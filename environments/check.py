"""Checks that an experiment's environments can be built and fit one policy, before anything is started."""

from __future__ import annotations

from remuda.config.current import evaluated, kwargs_of_stage, on_task
from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.lanes import Group
from remuda.environments.make import make_parallel, make_single
from remuda.environments.spaces import Space, space_structure


def check_environment(config: ExperimentConfig) -> tuple[Space, Space]:
    """Build one environment and close it; returns its observation and action space, in an environment with several
    agents those that all of `env.agents` have. Raises EnvironmentBuildError."""
    if config.env.kind == "pettingzoo":
        return _check_agents(config)
    env = make_single(config.env, source_dir=config.source_dir)
    try:
        return env.observation_space, env.action_space
    finally:
        with NoExit():
            env.close()


def check_tasks(config: ExperimentConfig, spaces: tuple[Space, Space]) -> None:
    """Build the environment of each later task, and those of evaluations, and close them: a policy of these spaces has
    to fit all of them. Raises EnvironmentBuildError."""
    for stage in range(len(config.env.schedule) + 1):
        at = on_task(config, kwargs_of_stage(config, stage))
        if stage:
            require_same(f"env.schedule[{stage - 1}]", spaces, check_environment(at))
        check_evaluated(at, spaces)


def check_evaluated(config: ExperimentConfig, spaces: tuple[Space, Space]) -> None:
    """The same of the environment of evaluations, where that is another."""
    if config.evaluator.env is not None:
        require_same("evaluator.env", spaces, check_environment(evaluated(config)))


def require_same(setting: str, policy: tuple[Space, Space], other: tuple[Space, Space]) -> None:
    """Raise EnvironmentBuildError unless the policy, whose observation and action space these are, can act in the
    environment of a setting, which has `other` ones: bounds of observations may differ."""
    for what, own, there in zip(("observation", "action"), policy, other, strict=True):
        if _form(what, own) != _form(what, there):
            raise EnvironmentBuildError(
                f"{setting}: its {what} space is {there}, and the policy acts in an environment with {own}: these have "
                "to be the same in all tasks and in evaluations"
            )


def _form(what: str, space: Space) -> object:
    described = space_structure(space)
    bounds = ("low", "high") if what == "observation" else ()
    return {key: value for key, value in described.items() if key not in bounds}


def _check_agents(config: ExperimentConfig) -> tuple[Space, Space]:
    env = make_parallel(config.env, source_dir=config.source_dir)
    try:
        group = Group.of(env, config.env.agents)
        return group.observation, group.action
    finally:
        with NoExit():
            env.close()
