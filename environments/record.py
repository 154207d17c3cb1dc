"""What a run folder keeps of its environment: env_spec.json, and vars.pkl where it can be pickled."""

from __future__ import annotations

import json
from contextlib import closing

from remuda.config.exits import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.env_spec import environment_spec
from remuda.environments.make import make_single
from remuda.environments.vectors import Vector
from remuda.storage.atomic import write_text
from remuda.storage.env_files import pickle_environment
from remuda.storage.run_folder import RunFolder


def record_environment(run: RunFolder, config: ExperimentConfig, vector: Vector) -> list[str]:
    """Write both files; return warnings for the log that say what could not be written, and why.

    No run ends for want of them, whether it is the disk that refuses or the environment's own code. What is pickled is
    one environment, freshly built: neither the vector nor one that has been played in.
    """
    told = (_describe(run, config, vector), _keep_copy(run, config))
    return [warning for warning in told if warning is not None]


def _describe(run: RunFolder, config: ExperimentConfig, vector: Vector) -> str | None:
    text = json.dumps(environment_spec(config.env, vector), indent=2) + "\n"
    try:
        write_text(run.env_spec, text, durable=False)
    except OSError as error:
        return f"{run.env_spec.name} was not written ({error}). Nothing else is affected: config.json has its settings."
    return None


def _keep_copy(run: RunFolder, config: ExperimentConfig) -> str | None:
    try:
        with NoExit(), closing(make_single(config.env, source_dir=config.source_dir)) as env:
            return pickle_environment(run.vars_pkl, env)
    except Exception as error:  # whatever the environment's own code raises
        return (
            f"the environment that {run.vars_pkl.name} is to hold a copy of could not be built, or not be closed again "
            f"({type(error).__name__}: {error}). Nothing else is affected."
        )
