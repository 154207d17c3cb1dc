"""Small MuZero networks, configs and batches for several tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.muzero.learning import MuZero
from remuda.policy.algorithms.muzero.networks import Support
from remuda.policy.spaces import ActionSpec, ObservationSpec

OBSERVATION, ACTION = ObservationSpec((3,), "float32"), ActionSpec(2)
SMALL = MuZeroConfig(
    simulations=6,
    unroll_steps=3,
    n_step=2,
    hidden=(9,),
    latent=8,
    head_hidden=7,
    support_size=5,
    projection_units=12,
    projection_bottleneck=6,
    target_update_iters=4,
)

Batch = dict[str, np.ndarray]


def changed(**settings: Any) -> MuZeroConfig:
    """The small network's config with other settings."""
    return SMALL.model_copy(update=settings)


def config(policy: MuZeroConfig = SMALL, learner: LearnerConfig | None = None) -> ExperimentConfig:
    return ExperimentConfig(
        name="case",
        env=EnvConfig(id="CartPole-v1"),
        policy=policy,
        learner=learner or LearnerConfig(learning_rate=1e-2, max_grad_norm=None),
    )


def muzero(
    policy: MuZeroConfig = SMALL,
    learner: LearnerConfig | None = None,
    *,
    observation: ObservationSpec = OBSERVATION,
    action: ActionSpec = ACTION,
    seed: int = 0,
) -> MuZero:
    return MuZero(config(policy, learner), observation, action, seed)


def batch(
    rng: np.random.Generator,
    policy: MuZeroConfig = SMALL,
    *,
    rows: int = 6,
    steps: np.ndarray | None = None,
    terminated: np.ndarray | None = None,
    start: int = 0,
) -> Batch:
    """Random rows of Unrolls; without `steps` some end inside their window, terminated or cut."""
    k, window = policy.unroll_steps, policy.unroll_steps + policy.n_step
    steps = rng.integers(1, window + 1, rows) if steps is None else steps
    terminated = rng.random(rows) < 0.5 if terminated is None else terminated
    obs = rng.normal(size=(rows, window + 1, 3)).astype(np.float32)
    action = rng.integers(0, 2, (rows, k)) + start
    reward = rng.normal(size=(rows, window)).astype(np.float32)
    searched = rng.dirichlet((1.0, 1.0), (rows, k + 1)).astype(np.float32)
    value = rng.normal(size=(rows, k + 1)).astype(np.float32)
    for row, known in enumerate(steps):
        obs[row, known:] = obs[row, known]
        action[row, known:], reward[row, known:] = 0, 0.0
        searched[row, known:], value[row, known:] = 0.0, 0.0
    return {
        "obs": obs,
        "action": action,
        "reward": reward,
        "search_policy": searched,
        "root_value": value,
        "steps": steps.astype(np.int32),
        "terminated": terminated,
        "weights": rng.uniform(0.5, 1.0, rows).astype(np.float32),
    }


def two_hot(support: Support, numbers: torch.Tensor) -> torch.Tensor:
    """Numbers [n] as distributions [n, atoms] over two neighbouring atoms."""
    lower, share = support.neighbours(numbers)
    distribution = numbers.new_zeros(len(numbers), support.atoms)
    distribution.scatter_(1, lower[:, None], (1.0 - share)[:, None])
    return distribution.scatter_(1, lower[:, None] + 1, share[:, None])
