"""What the simulated experiments are configured as; a section that is given takes the place of the usual one."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import Role

_REPLAY: dict[str, dict[str, object]] = {
    "env": {"id": "CartPole-v1", "num_envs": 8},
    "learner": {"batch_size": 16, "prefetch_batches": 4},
    "collector": {"count": 2, "chunk_env_steps": 64},
    "evaluator": {"count": 1, "episodes": 4, "interval_env_steps": 500},
    "buffer": {"capacity": 1_000, "min_rows": 200, "samples_per_insert": 4.0},
    "checkpoint": {"interval_env_steps": 700},
    "log": {"progress_interval_env_steps": 300},
    "stop": {"max_env_steps": 3_000},
}
_SHORT_REPLAY: dict[str, dict[str, object]] = {
    "env": {"num_envs": 4},
    "learner": {"batch_size": 8, "prefetch_batches": 2},
    "collector": {"chunk_env_steps": 16},
    "evaluator": {"episodes": 3, "interval_env_steps": 90},
    "buffer": {"capacity": 120, "min_rows": 32, "samples_per_insert": 2.0},
    "checkpoint": {"interval_env_steps": 70},
    "log": {"progress_interval_env_steps": 50},
    "stop": {"max_env_steps": 240},
}
_ON_POLICY: dict[str, dict[str, object]] = {
    "env": {"id": "CartPole-v1", "num_envs": 4},
    "policy": {"type": "ppo", "horizon_steps": 16},
    "collector": {"count": 2},
    "evaluator": {"count": 1, "episodes": 2, "interval_env_steps": 1_000},
    "stop": {"max_env_steps": 4_000},
}
_SHORT_ON_POLICY: dict[str, dict[str, object]] = {
    "env": {"num_envs": 2},
    "policy": {"horizon_steps": 8},
    "evaluator": {"interval_env_steps": 90},
    "log": {"progress_interval_env_steps": 50},
    "stop": {"max_env_steps": 240},
}


def config(**sections: object) -> ExperimentConfig:
    """A run from replay, of half a minute."""
    return _validated(_REPLAY, sections)


def short_config(**sections: object) -> ExperimentConfig:
    """One so short that it can be run thousands of times."""
    return _validated(_merged(_REPLAY, _SHORT_REPLAY), sections)


def on_policy_config(lag: int | None, **sections: object) -> ExperimentConfig:
    """One by PPO, with collectors at most `lag` updates behind."""
    return _validated({**_ON_POLICY, "buffer": {"max_policy_lag": lag}}, sections)


def short_on_policy_config(lag: int) -> ExperimentConfig:
    """One so short that it can be run thousands of times."""
    return _validated({**_merged(_ON_POLICY, _SHORT_ON_POLICY), "buffer": {"max_policy_lag": lag}}, {})


def _merged(usual: dict[str, dict[str, object]], changes: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    return {section: {**usual.get(section, {}), **changes.get(section, {})} for section in {**usual, **changes}}


def _validated(usual: dict[str, dict[str, object]], sections: dict[str, object]) -> ExperimentConfig:
    return ExperimentConfig.model_validate({"name": "x", **usual, **sections})


def holder(lease: int, role: Role = "collector", worker: str = "a", incarnation: int = 1) -> LeaseHolder:
    return LeaseHolder(lease, worker, incarnation, role, "here", 42)
