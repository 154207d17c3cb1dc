"""Checks that an experiment's environment can be built, before anything is started."""

from __future__ import annotations

from remuda.config.exits import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import Group
from remuda.environments.make import make_single
from remuda.environments.parallel import make_parallel
from remuda.environments.spaces import Space


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


def _check_agents(config: ExperimentConfig) -> tuple[Space, Space]:
    env = make_parallel(config.env, source_dir=config.source_dir)
    try:
        group = Group.of(env, config.env.agents)
        return group.observation, group.action
    finally:
        with NoExit():
            env.close()
