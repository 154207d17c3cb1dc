"""The density of normal numbers after tanh integrates to 1 and stays finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from remuda.policy.acting import distributions
from remuda.policy.torch_distributions import SquashedGaussian
from remuda.tests.policy.algorithms.twin_critics.cases import integral


def log_density(units: np.ndarray, mean: float, log_std: float) -> np.ndarray:
    """Log density of numbers in -1 … 1, by the learning side."""
    noise = torch.from_numpy((np.arctanh(units) - mean) / math.exp(log_std))[:, None]
    outputs = torch.tensor([[mean, log_std]], dtype=torch.float64).expand(len(units), 2)
    action, log_prob = SquashedGaussian(outputs).drawn_by(noise)
    np.testing.assert_allclose(action[:, 0].numpy(), units, atol=1e-9)
    return log_prob.numpy()


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-2.0, -0.5), (0.3, -0.2)])
def test_the_density_adds_up_to_one(mean: float, log_std: float) -> None:
    assert integral(lambda units: np.exp(log_density(units, mean, log_std)), -1, 1) == pytest.approx(1.0, abs=1e-3)


def test_one_density_by_hand() -> None:
    """tanh(0.5) of a standard normal number: the normal density at 0.5, divided by the slope of tanh there."""
    _, log_prob = SquashedGaussian(torch.zeros(1, 2, dtype=torch.float64)).drawn_by(
        torch.tensor([[0.5]], dtype=torch.float64)
    )
    expected = math.exp(-0.125) / math.sqrt(2 * math.pi) / (1 - math.tanh(0.5) ** 2)
    assert float(log_prob) == pytest.approx(math.log(expected))


def test_several_numbers_are_independent() -> None:
    outputs, noise = torch.tensor([[0.1, -0.4, 0.2, -1.0]]), torch.tensor([[0.3, 1.5]])
    both = SquashedGaussian(outputs).drawn_by(noise)[1]
    each = [SquashedGaussian(outputs[:, [index, 2 + index]]).drawn_by(noise[:, [index]])[1] for index in (0, 1)]
    torch.testing.assert_close(both, each[0] + each[1])


def test_gradients_are_those_of_finite_differences() -> None:
    """Gradients by means and deviations, two of which are at their bounds."""
    outputs = torch.tensor([[0.3, -2.0, -1.0, 0.5], [1.0, 0.1, -9.0, 5.0]], dtype=torch.float64, requires_grad=True)
    noise = torch.tensor([[0.7, -0.2], [-1.5, 0.4]], dtype=torch.float64)
    for which in (slice(0, 1), slice(1, 2), slice(None)):  # one of both results alone, and both
        assert torch.autograd.gradcheck(lambda given, of=which: SquashedGaussian(given).drawn_by(noise)[of], (outputs,))


def test_far_out_everything_stays_finite() -> None:
    """Where tanh(u) is 1 in float32 and its slope 0."""
    outputs = torch.tensor([[30.0, -30.0, 1.0, 9.0]], requires_grad=True)
    action, log_prob = SquashedGaussian(outputs).drawn_by(torch.tensor([[1.0, -1.0]]))
    assert action.tolist() == [[1.0, -1.0]]
    assert torch.isfinite(log_prob).all()
    (gradient,) = torch.autograd.grad(action.sum() + 0.2 * log_prob.sum(), outputs)
    assert torch.isfinite(gradient).all()
    assert gradient[0, 3] == 0.0, "held at its bound"


def test_collectors_draw_from_the_same_distribution() -> None:
    outputs = np.tile(np.array([[0.4, -1.0, -0.5, 5.0]], np.float32), (40_000, 1))
    drawn = distributions.SquashedGaussian(outputs).sample(np.random.default_rng(0))
    before = np.arctanh(np.clip(drawn.astype(np.float64), -1 + 1e-12, 1 - 1e-12))[:, 0]
    assert before.mean() == pytest.approx(0.4, abs=4 * math.exp(-0.5) / 200)
    assert before.std() == pytest.approx(math.exp(-0.5), rel=0.02)
    # The second is held at a standard deviation of exp(2): P(u > 0) for a mean of -1.
    above = 0.5 * math.erfc(1.0 / math.exp(2.0) / math.sqrt(2.0))
    assert float((drawn[:, 1] > 0).mean()) == pytest.approx(above, abs=0.01)
    np.testing.assert_allclose(distributions.SquashedGaussian(outputs[:1]).mode(), np.tanh([[0.4, -1.0]]), rtol=1e-6)
