"""Writes the description of the environment into the run folder: env_spec.json, and vars.pkl if pickling works."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing

from pydantic import JsonValue

from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import AgentsVector
from remuda.environments.env_spec import agents_spec, environment_spec
from remuda.environments.make import make_single
from remuda.environments.vectors import Vector
from remuda.storage.atomic import write_text
from remuda.storage.env_files import pickle_environment
from remuda.storage.run_folder import RunFolder


def record_environment(run: RunFolder, config: ExperimentConfig, vector: Vector) -> list[str]:
    """Write both files; return warnings for the log about failures.

    A failure of the disk or of the environment's code does not end the run. The pickled environment is a new single
    environment, not the vector.
    """
    told = (_describe(run, config, vector), _keep_copy(run, config))
    return [warning for warning in told if warning is not None]


def record_agents(
    run: RunFolder, *, config: ExperimentConfig, vector: AgentsVector, policies: Sequence[str]
) -> list[str]:
    """Write env_spec.json of an environment with several agents, in groups by policy. Returns warnings like
    record_environment. There is no pickled copy."""
    spec = agents_spec(config.env, vector, policies)
    return [warning for warning in (_written(run, spec),) if warning is not None]


def _describe(run: RunFolder, config: ExperimentConfig, vector: Vector) -> str | None:
    return _written(run, environment_spec(config.env, vector))


def _written(run: RunFolder, spec: Mapping[str, JsonValue]) -> str | None:
    text = json.dumps(spec, indent=2) + "\n"
    try:
        write_text(run.env_spec, text, durable=False)
    except OSError as error:
        return f"{run.env_spec.name} was not written ({error}). Nothing else is affected: config.json has its settings."
    return None


def _keep_copy(run: RunFolder, config: ExperimentConfig) -> str | None:
    try:
        with NoExit(), closing(make_single(config.env, source_dir=config.source_dir)) as env:
            return pickle_environment(run.vars_pkl, env)
    except Exception as error:  # any error of the environment
        return (
            f"{run.vars_pkl.name} was not written, since an environment for it could not be built, or not be closed "
            f"({type(error).__name__}: {error}). Nothing else is affected."
        )
