"""A run folder and a lease for tests of what workers do, on a small CartPole."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.environments.make import make_single
from remuda.learner.checkpoint import new_algorithm
from remuda.policy.base import Algorithm
from remuda.storage.existing_folder import prepare
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Assign
from remuda.worker.stores.ports import RunStores, file_stores

EXPERIMENT = "eeeeeeee-0000-4000-8000-000000000001"


def small_config(**sections: Any) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        {
            "name": "small",
            "seed": 7,
            "env": {"id": "CartPole-v1", "num_envs": 4},
            "policy": {"hidden": (16, 8), "n_step": 3},
            "learner": {"batch_size": 8, "prefetch_batches": 2, "publish_interval_iters": 3},
            "collector": {"chunk_env_steps": 16},
            "evaluator": {"episodes": 5},
            "log": {"interval_train_iters": 4},
            **sections,
        }
    )


def new_run(folder: Path) -> RunFolder:
    return prepare(folder / "run", "error", mode="parallel", now=datetime.now(UTC))


def assign_to(run: RunFolder, config: ExperimentConfig, *, lease: int = 1, **changes: Any) -> Assign:
    assign = Assign(
        lease=lease,
        experiment=EXPERIMENT,
        name=config.name,
        run_dir=str(run.root),
        config_json=config.model_dump_json(),
        index=1,
        generation=0,
        policy_file=run.policy_file(EXPERIMENT, 0).name,
        epoch=1,
        exploration={"epsilon": 0.0},
    )
    return replace(assign, **changes)


def sha256_of(path: Path) -> str:
    """As the record of a checkpoint has it; of one that is missing, any."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "0" * 64


def stores_of(run: RunFolder) -> RunStores:
    """Of a worker that sees the run folder."""
    return file_stores(run, run.policy_file(EXPERIMENT, 0).name)


def algorithm_of(config: ExperimentConfig) -> Algorithm:
    """As a learner of this config starts with."""
    env = make_single(config.env, source_dir=None)
    try:
        return new_algorithm(config, env.observation_space, env.action_space)
    finally:
        env.close()
