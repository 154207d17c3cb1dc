"""The plain torch loop that our learner is measured against does the same work: it learns the same weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from remuda.benchmarks.plain_dqn import PlainDqn
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.learner.start import new_algorithm
from remuda.policy.algorithms.dqn.learning import Dqn


def batch(rng: np.random.Generator) -> Mapping[str, np.ndarray]:
    return {
        "obs": rng.standard_normal((64, 4)).astype(np.float32),
        "next_obs": rng.standard_normal((64, 4)).astype(np.float32),
        "action": rng.integers(0, 2, 64),
        "reward": rng.standard_normal(64).astype(np.float32),
        "discount": np.full(64, 0.97, np.float32),
        "weights": rng.random(64).astype(np.float32),
    }


def test_it_learns_what_ours_learns() -> None:
    config = ExperimentConfig(name="plain", env=EnvConfig(id="CartPole-v1"), policy=DqnConfig(target_update_iters=5))
    spaces = Box(-1.0, 1.0, (4,), np.float32), Discrete(2)
    ours, twin = (new_algorithm(config, *spaces) for _ in range(2))
    assert isinstance(ours, Dqn)
    assert isinstance(twin, Dqn)
    before = torch.cat([parameter.detach().clone().flatten() for parameter in ours.network.parameters()])
    plain = PlainDqn(config, twin.network)
    rng = np.random.default_rng(1)
    for _ in range(20):
        columns = batch(rng)
        ours.learn(columns)
        plain.learn(columns)
    learned = [torch.cat([p.detach().flatten() for p in each.network.parameters()]) for each in (ours, twin)]
    assert float((learned[0] - before).abs().max()) > 1e-3, "something was learned"
    torch.testing.assert_close(learned[0], learned[1], atol=1e-5, rtol=1e-4)
