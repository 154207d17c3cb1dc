"""What a run folder keeps of its environment: env_spec.json always, vars.pkl where it can be pickled."""

from __future__ import annotations

import json

from remuda.config.schema import ExperimentConfig
from remuda.environments.env_spec import environment_spec
from remuda.environments.make import Vector, make_single
from remuda.storage.atomic import write_text
from remuda.storage.env_files import pickle_environment
from remuda.storage.run_folder import RunFolder


def record_environment(run: RunFolder, config: ExperimentConfig, vector: Vector) -> str | None:
    """Write both files; return a warning for the log where the environment cannot be pickled. Raises OSError.

    What is pickled is one environment, freshly built: neither the vector nor one that has been played in.
    """
    write_text(run.env_spec, json.dumps(environment_spec(config.env, vector), indent=2) + "\n", durable=False)
    env = make_single(config.env, source_dir=config.source_dir)
    try:
        return pickle_environment(run.vars_pkl, env)
    finally:
        env.close()
