"""Small R2D2 algorithms, and sequences for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from remuda.config.algorithms.q_learning import R2d2Config
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.r2d2.learning import R2d2
from remuda.policy.networks.layouts import CoreKind
from remuda.policy.spaces import ActionSpec, ObservationSpec

OBSERVATION, ACTION = ObservationSpec((3,), "float32"), ActionSpec(2, 4)


def settings(**changes: Any) -> R2d2Config:
    usual: dict[str, Any] = {
        "recurrent_units": 6,
        "hidden": (5,),
        "head_hidden": (7,),
        "burn_in_steps": 2,
        "sequence_steps": 4,
        "overlap_steps": 2,
        "n_step": 2,
        "discount": 0.9,
        "target_update_iters": 3,
    }
    return R2d2Config(**usual | changes)


def experiment(policy: R2d2Config) -> ExperimentConfig:
    return ExperimentConfig(
        name="case", seed=4, env=EnvConfig(id="CartPole-v1"), policy=policy, learner=LearnerConfig(learning_rate=0.01)
    )


def r2d2(policy: R2d2Config | None = None, seed: int = 1) -> R2d2:
    return R2d2(experiment(policy or settings()), OBSERVATION, ACTION, seed)


def batch(rng: np.random.Generator, policy: R2d2Config | None = None, rows: int = 3) -> dict[str, np.ndarray]:
    """Sequences, some with an end and a reset."""
    policy = policy or settings()
    slots = policy.burn_in_steps + policy.sequence_steps + policy.n_step - 1
    done = rng.random((rows, slots)) < 0.2
    done[:, 1:] &= ~done[:, :-1]
    valid = np.ones((rows, slots), np.bool_)
    valid[:, 1:] = ~done[:, :-1]
    kind: CoreKind = policy.recurrent
    return {
        "obs": rng.normal(size=(rows, slots + 1, *OBSERVATION.shape)).astype(np.float32),
        "action": 4 + rng.integers(0, 2, (rows, slots)),
        "reward": np.where(valid, rng.normal(size=(rows, slots)), 0.0).astype(np.float32),
        "terminated": done & (rng.random((rows, slots)) < 0.5),
        "done": done,
        "valid": valid,
        "state": rng.normal(0.0, 0.3, (rows, 12 if kind == "lstm" else 6)).astype(np.float32),
        "weights": rng.uniform(0.2, 1.0, rows).astype(np.float32),
    }
