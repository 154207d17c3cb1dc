"""PQN: λ-returns by hand, the loss by hand and by finite differences, and the effects of a batch."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch

from remuda.config.algorithms.q_learning import PqnConfig
from remuda.policy.algorithms.dqn.pqn import Pqn, Steps
from remuda.tests.policy.algorithms import segments

POLICY = PqnConfig(hidden=(8, 8), horizon_steps=9, q_lambda=0.7, discount=0.9, epochs=2, minibatches=4)


def made(policy: PqnConfig = POLICY) -> Pqn:
    return cast("Pqn", segments.on_policy(policy))


def test_returns_mix_rewards_and_the_best_values() -> None:
    """R_t = r_t + γ ((1 - λ) max Q(s') + λ R'), with R' = max Q(s') at the end of an episode or segment."""
    rng = np.random.default_rng(0)
    outcome = segments.outcome(rng, 20, 9)
    best = rng.normal(size=(20, 10)).astype(np.float32)
    found = made().returns(outcome, best)
    for row in range(20):
        for stretch in segments.episodes_of(outcome, row):
            later: float | None = None
            for t in reversed(stretch):
                value = 0.0 if outcome.terminated[row, t] else float(best[row, t + 1])
                rest = value if later is None else 0.3 * value + 0.7 * later
                later = float(outcome.reward[row, t]) + 0.9 * rest
                assert found[row, t] == pytest.approx(later, abs=1e-5)


def some_steps(rng: np.random.Generator, count: int = 12) -> Steps:
    numbers = torch.tensor(rng.normal(size=(count, 4)), dtype=torch.float32)
    action, target = torch.tensor(rng.integers(0, 2, count)), torch.tensor(rng.normal(size=count), dtype=torch.float32)
    return Steps(numbers, action, target)


def test_the_loss_is_half_the_mean_squared_error_and_goes_down_its_slope() -> None:
    pqn, steps = made(), some_steps(np.random.default_rng(1))
    loss = pqn.loss(steps)
    with torch.no_grad():
        chosen = pqn.network(steps.obs)[torch.arange(12), steps.action]
    assert float(loss.total.detach()) == pytest.approx(float((chosen - steps.target).square().mean() / 2), rel=1e-5)
    pqn.network.double()
    assert isinstance(steps.obs, torch.Tensor)
    exact = Steps(steps.obs.double(), steps.action, steps.target.double())
    for parameter in pqn.network.parameters():
        (slope,) = torch.autograd.grad(pqn.loss(exact).total, parameter)
        flat, place = parameter.detach().view(-1), int(slope.abs().argmax())
        totals: list[float] = []
        for step in (1e-6, -2e-6):
            flat[place] += step
            totals.append(float(pqn.loss(exact).total.detach()))
        assert (totals[0] - totals[1]) / 2e-6 == pytest.approx(float(slope.view(-1)[place]), rel=1e-4, abs=1e-9)


def test_an_action_that_is_not_legal_is_no_part_of_a_target() -> None:
    pqn, rows = made(), segments.batch(np.random.default_rng(3), ending=0.0)
    with torch.no_grad():
        values = pqn.network(torch.tensor(rows["obs"].reshape(-1, 4))).numpy().reshape(6, 10, 2)
    allowed = values == values.min(axis=-1, keepdims=True)
    every, worst = (
        pqn.learn({**rows, "legal": legal}).metrics["target_q_value"] for legal in (np.ones_like(allowed), allowed)
    )
    assert isinstance(every, torch.Tensor)
    assert isinstance(worst, torch.Tensor)
    assert every.sum() > worst.sum() + 0.1


def test_hidden_layers_are_normalised_unless_told_otherwise() -> None:
    assert sum(isinstance(layer, torch.nn.LayerNorm) for layer in made().network.modules()) == 2
    plain = made(POLICY.model_copy(update={"layer_norm": False}))
    assert not any(isinstance(layer, torch.nn.LayerNorm) for layer in plain.network.modules())
