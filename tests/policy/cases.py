"""Small configs, algorithms and batches for several tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from remuda.config.algorithms.q_learning import DqnConfig, QLearningConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.networks.portable import Portable
from remuda.policy.spaces import ActionSpec, ObservationSpec

OBSERVATION, ACTION = ObservationSpec((4,), "float32"), ActionSpec(2)

Batch = dict[str, np.ndarray]
Draw = Callable[[np.random.Generator, int], np.ndarray]


def config(policy: QLearningConfig | None = None, learner: LearnerConfig | None = None) -> ExperimentConfig:
    return ExperimentConfig(
        name="case",
        env=EnvConfig(id="CartPole-v1"),
        policy=policy or DqnConfig(hidden=(16, 8)),
        learner=learner or LearnerConfig(),
    )


def dqn(
    policy: DqnConfig | None = None,
    learner: LearnerConfig | None = None,
    *,
    observation: ObservationSpec = OBSERVATION,
    action: ActionSpec = ACTION,
    seed: int = 0,
) -> Dqn:
    return Dqn(config(policy, learner), observation, action, seed)


def batch(rng: np.random.Generator, rows: int = 16) -> Batch:
    return transitions(lambda rng, n: rng.normal(size=(n, 4)).astype(np.float32), ACTION, rng, rows)


def transitions(seen: Draw, action: ActionSpec, rng: np.random.Generator, rows: int = 16) -> Batch:
    """Rows of single steps, with observations by `seen`."""
    return {
        "obs": seen(rng, rows),
        "next_obs": seen(rng, rows),
        "action": acted(action, rng, rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "discount": np.full(rows, 0.9, np.float32),
        "weights": np.ones(rows, np.float32),
    }


def acted(action: ActionSpec, rng: np.random.Generator, rows: int) -> np.ndarray:
    if not action.is_box:
        return counted(action, rng, rows)
    low, high = (np.array(side, np.float64).reshape(action.shape) for side in (action.low, action.high))
    return rng.uniform(low, high, (rows, *action.shape))


def counted(action: ActionSpec, rng: np.random.Generator, rows: int) -> np.ndarray:
    if action.n is not None:
        return action.start + rng.integers(0, action.n, rows)
    return action.to_environment(rng.integers(0, action.counts, (rows, len(action.counts))))


def answered(portable: Portable | None, method: str, observations: np.ndarray) -> np.ndarray:
    """Output of a method of a policy without a state."""
    assert portable is not None
    with torch.no_grad():
        answer: torch.Tensor = getattr(portable, method)(torch.from_numpy(observations))
    return answer.numpy()
