"""Whether an experiment's environment can be built and worked with, before anything is started."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig
from remuda.environments.make import make_single


def check_environment(config: ExperimentConfig) -> None:
    """Build one environment and close it. Raises EnvironmentBuildError."""
    make_single(config.env, source_dir=config.source_dir).close()
