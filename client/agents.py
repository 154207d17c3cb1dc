"""The names of the agents of an environment, which a coordinator has to know and cannot look up."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig


def with_agents(config: ExperimentConfig) -> ExperimentConfig:
    """The config with `env.agents`, for `Client.submit`. An environment with several agents is built once. Raises
    EnvironmentBuildError."""
    if config.env.kind != "pettingzoo":
        return config
    from remuda.environments.agents import agents_of

    agents = agents_of(config.env, source_dir=config.source_dir)
    return config.model_copy(update={"env": config.env.model_copy(update={"agents": agents})})
