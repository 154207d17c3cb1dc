"""IMPALA: its losses and step by hand, for any lag of the acting policy."""

from __future__ import annotations

import math

import pytest
import torch

from remuda.config.algorithms.actor_critic import ImpalaConfig
from remuda.config.learning import LearnerConfig
from remuda.policy.base import Algorithm
from remuda.policy.spaces import ObservationSpec
from remuda.tests.policy.algorithms.segments import numbers, on_policy, one_slot

PLAIN = ImpalaConfig(hidden=(), discount=0.5, entropy_coefficient=0.0, normalize_rewards=False)
HALF = math.log(0.5)


def tabular(policy: ImpalaConfig = PLAIN) -> Algorithm:
    """Both actions equally likely everywhere; states are worth 0.25 and 4."""
    learner = LearnerConfig(learning_rate=0.1, max_grad_norm=None)
    algorithm = on_policy(policy, learner, observation=ObservationSpec((), "int64", n=2))
    model = dict(algorithm.network.state_dict())
    model |= {"policy.0.weight": torch.zeros(2, 2), "value.0.weight": torch.tensor([[0.25, 4.0]])}
    algorithm.load_state(algorithm.state() | {"model": model})
    return algorithm


@pytest.mark.parametrize(
    ("old_probability", "rho_clip", "rho"),
    [(0.5, 1.0, 1.0), (0.25, 1.0, 1.0), (0.25, 3.0, 2.0), (1.0, 1.0, 0.5), (1.0, 0.25, 0.25)],
)
def test_losses_of_one_step_by_hand(old_probability: float, rho_clip: float, rho: float) -> None:
    algorithm = tabular(PLAIN.model_copy(update={"rho_clip": rho_clip, "entropy_coefficient": 0.1}))
    result = algorithm.learn(one_slot(reward=1.0, log_prob=math.log(old_probability)))
    got = numbers(result.metrics)
    assert result.priorities is None
    assert got["policy_loss"] == pytest.approx(-rho * 0.75 * HALF)  # the advantage 1 - 0.25, weighted
    assert got["value_loss"] == pytest.approx((rho * 0.75) ** 2)  # the target is as far as the weight lets it go
    expected = -rho * 0.75 * HALF + 0.5 * (rho * 0.75) ** 2 - 0.1 * math.log(2)
    assert got["total_loss"] == pytest.approx(expected)
    assert got["clip_fraction"] == float(0.5 / old_probability > rho_clip)
    ratio = 0.5 / old_probability
    assert got["approx_kl"] == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-6)


@pytest.mark.parametrize("log_prob", [-1000.0, 1000.0])
def test_policies_however_far_apart_give_finite_numbers(log_prob: float) -> None:
    got = numbers(tabular(PLAIN).learn(one_slot(reward=1.0, log_prob=log_prob)).metrics)
    assert all(math.isfinite(value) for value in got.values()), got


def test_rounding_is_no_clipping() -> None:
    got = numbers(tabular(PLAIN).learn(one_slot(reward=1.0, log_prob=math.log(0.5) - 1e-6)).metrics)
    assert got["clip_fraction"] == 0.0
