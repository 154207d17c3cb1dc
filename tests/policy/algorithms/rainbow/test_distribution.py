"""Distributions of returns: targets and losses by hand, and properties of all."""

from __future__ import annotations

import pytest
import torch

from remuda.policy.return_distributions import Categorical, Quantiles

CPU = torch.device("cpu")
FIVE = Categorical(5, 0.0, 4.0, CPU)
"""Returns 0, 1, 2, 3, 4."""


def logits(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def projected(outputs: torch.Tensor, reward: float, discount: float) -> list[float]:
    return FIVE.target(outputs, torch.tensor([reward]), torch.tensor([discount]))[0].tolist()


@pytest.mark.parametrize(
    ("reward", "discount", "expected"),
    [
        (0.0, 1.0, [0.1, 0.2, 0.3, 0.2, 0.2]),  # nothing moves
        (1.0, 1.0, [0.0, 0.1, 0.2, 0.3, 0.4]),  # by one; what lies beyond the largest counts as the largest
        (-9.0, 1.0, [1.0, 0.0, 0.0, 0.0, 0.0]),
        (0.0, 0.5, [0.2, 0.5, 0.3, 0.0, 0.0]),  # 0, 0.5, 1, 1.5, 2: halves go to both sides
        (0.25, 1.0, [0.075, 0.175, 0.275, 0.225, 0.25]),  # a quarter goes one further
        (2.75, 0.0, [0.0, 0.0, 0.25, 0.75, 0.0]),  # terminated: the reward alone
        (4.0, 0.0, [0.0, 0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_projection_by_hand(reward: float, discount: float, expected: list[float]) -> None:
    assert projected(logits(0.1, 0.2, 0.3, 0.2, 0.2), reward, discount) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("v_max", [53.0, 7.3, 1e-3, 333.3])
def test_what_lies_at_the_largest_return_keeps_its_mass_though_steps_are_rounded(v_max: float) -> None:
    distribution = Categorical(51, 0.0, v_max, CPU)
    target = distribution.target(torch.zeros(1, 51), torch.tensor([2 * v_max]), torch.zeros(1))
    assert bool((target >= 0).all())
    assert float(target.sum()) == pytest.approx(1.0)
    assert bool(distribution.losses(torch.zeros(1, 51), target).isfinite().all())


def test_the_quantile_loss_by_hand() -> None:
    # Quantiles at 1/4 and 3/4, targets 0 and 3. Errors of the first: 0 - 1 = -1 (Huber 1/2, weight 3/4) and 3 - 1 = 2
    # (Huber 3/2, weight 1/4); of the second: 0 - 2 = -2 (3/2, weight 1/4) and 3 - 2 = 1 (1/2, weight 3/4).
    loss = Quantiles(2, CPU).losses(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 3.0]]))
    first = (0.5 * 0.75 + 1.5 * 0.25) / 2
    second = (1.5 * 0.25 + 0.5 * 0.75) / 2
    assert float(loss) == pytest.approx(first + second)


def test_the_target_of_quantiles_by_hand() -> None:
    outputs, reward, discount = torch.tensor([[1.0, 4.0]]), torch.tensor([0.5]), torch.tensor([0.9])
    target = Quantiles(2, CPU).target(outputs, reward, discount)
    assert target[0].tolist() == pytest.approx([1.4, 4.1])
    assert float(Quantiles(2, CPU).target_expectation(target)) == pytest.approx(2.75)
