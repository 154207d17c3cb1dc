"""Checks that an experiment's environment can be built, before anything is started."""

from __future__ import annotations

from remuda.config.exits import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.make import make_single
from remuda.environments.spaces import Space


def check_environment(config: ExperimentConfig) -> tuple[Space, Space]:
    """Build one environment and close it; returns its observation and action space. Raises EnvironmentBuildError."""
    env = make_single(config.env, source_dir=config.source_dir)
    try:
        return env.observation_space, env.action_space
    finally:
        with NoExit():
            env.close()
