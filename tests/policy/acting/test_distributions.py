"""Distributions: acting and learning agree, probabilities are right, and samples follow them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from remuda.policy import torch_distributions
from remuda.policy.acting import distributions
from remuda.policy.acting.distributions import CorrelatedNoise
from remuda.policy.torch_distributions import SquashedGaussian
from remuda.tests.policy.algorithms import likelihoods
from remuda.tests.policy.algorithms.twin_critics.cases import integral

seeds = st.integers(0, 10**6)


@settings(deadline=None)
@given(rows=st.integers(1, 30), n=st.integers(1, 8), spread=st.sampled_from([0.01, 1.0, 30.0]), seed=seeds)
def test_categorical_is_the_same_in_both(rows: int, n: int, spread: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(rows, n)) * spread).astype(np.float32)
    actions = rng.integers(0, n, rows)
    ours = distributions.Categorical(logits)
    learning = torch_distributions.Categorical(torch.tensor(logits)).of(torch.tensor(actions))
    np.testing.assert_allclose(ours.log_prob(actions), learning.log_prob, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(ours.entropy(), learning.entropy, atol=1e-5)
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact - exact.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) + exact.max(
        axis=1, keepdims=True
    )
    np.testing.assert_allclose(ours.log_prob(actions), exact[np.arange(rows), actions], atol=1e-4, rtol=1e-5)
    np.testing.assert_allclose(ours.entropy(), -(np.exp(exact) * exact).sum(axis=1), atol=1e-4)
    assert ours.log_prob(actions).dtype == np.float32


@settings(deadline=None)
@given(rows=st.integers(1, 30), k=st.integers(1, 6), seed=seeds)
def test_gaussian_is_the_same_in_both(rows: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean, actions = (rng.normal(size=(rows, k)).astype(np.float32) for _ in range(2))
    log_std = rng.uniform(-1, 1, k).astype(np.float32)
    ours = distributions.Gaussian(mean, log_std)
    learning = torch_distributions.Gaussian(torch.tensor(mean), torch.tensor(log_std)).of(torch.tensor(actions))
    np.testing.assert_allclose(ours.log_prob(actions), learning.log_prob, atol=1e-5, rtol=1e-5)
    std = np.exp(log_std.astype(np.float64))
    exact = -0.5 * ((actions - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(ours.log_prob(actions), exact.sum(axis=1), atol=1e-4, rtol=1e-5)
    np.testing.assert_allclose(ours.entropy(), learning.entropy, atol=1e-5)
    np.testing.assert_allclose(ours.entropy(), (0.5 + 0.5 * np.log(2 * np.pi) + np.log(std)).sum(), atol=1e-4)
    assert ours.log_prob(actions).dtype == ours.sample(rng).dtype == np.float32


def test_drawn_indices_follow_the_probabilities() -> None:
    probabilities, n = np.array([0.5, 0.3, 0.0, 0.2]), 40_000
    with np.errstate(divide="ignore"):
        logits = np.tile(np.log(probabilities), (n, 1)).astype(np.float32)
    logits[:, 2] = -1e4  # impossible
    drawn = distributions.Categorical(logits + 100).sample(np.random.default_rng(0))
    shares = np.bincount(drawn, minlength=4) / n
    assert shares[2] == 0
    np.testing.assert_allclose(shares, probabilities, atol=4 * 0.5 / np.sqrt(n))


class Extreme(np.random.Generator):
    """Draws the same number every time."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self, size: tuple[int, ...]) -> np.ndarray:  # type: ignore[override]  # pyright: ignore
        return np.full(size, self.value)


@pytest.mark.parametrize(("drawn", "index"), [(0.0, 1), (1.0 - 2.0**-53, 2)])
def test_the_ends_of_the_uniform_numbers_are_possible_indices(drawn: float, index: int) -> None:
    """Logits whose probability rounds to 0 are never drawn."""
    logits = np.array([[-1e9, 0.0, 0.1, -1e9]], np.float32)
    assert distributions.Categorical(logits).sample(Extreme(drawn)).tolist() == [index]


@settings(deadline=None)
@given(rows=st.integers(1, 20), n=st.integers(1, 7), epsilon=st.sampled_from([0.0, 0.5, 1.0]), seed=seeds)
def test_only_legal_indices_are_chosen(rows: int, n: int, epsilon: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers, legal = (rng.normal(size=(rows, n)) * 20).astype(np.float32), rng.random((rows, n)) < 0.4
    legal[np.arange(rows), rng.integers(0, n, rows)] = True
    drawn = distributions.Categorical(distributions.masked(numbers, legal))
    greedy = distributions.epsilon_greedy(numbers, epsilon, rng, legal)
    for indices in (drawn.sample(rng), drawn.mode(), greedy, distributions.drawn_evenly(legal, rng)):
        assert legal[np.arange(rows), indices].all()
    if epsilon == 0.0:
        np.testing.assert_array_equal(greedy, np.where(legal, numbers, -np.inf).argmax(1))
    assert (drawn.probabilities()[~legal] == 0.0).all()


COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=6).map(tuple)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(0, 8), counts=COUNTS, by_entropy=st.sampled_from([0.0, -0.7]), masks=st.booleans(), seed=seeds)
def test_indices_are_independent(rows: int, counts: tuple[int, ...], by_entropy: float, masks: bool, seed: int) -> None:
    """Log probabilities and entropies are the sums of torch's over the components; gradients are autograd's."""
    rng = np.random.default_rng(seed)
    outputs, indices = rng.normal(size=(rows, sum(counts))), rng.integers(0, counts, (rows, len(counts)))
    legal = rng.random(outputs.shape) < (0.5 if masks else 1.0)
    np.put_along_axis(legal, indices + np.cumsum((0, *counts[:-1])), True, axis=1)
    low = np.where(legal, outputs, -1e9)
    logits, by_log_prob = torch.tensor(low, requires_grad=True), torch.tensor(rng.normal(size=rows))
    log_prob, entropy = torch.zeros(rows), torch.zeros(rows)
    for own, chosen in zip(torch.split(logits, list(counts), dim=1), torch.tensor(indices).unbind(1), strict=True):
        theirs = torch.distributions.Categorical(logits=own, validate_args=False)
        log_prob = log_prob + theirs.log_prob(chosen)  # type: ignore[no-untyped-call]
        entropy = entropy + theirs.entropy()  # type: ignore[no-untyped-call]
    loss = (by_log_prob * log_prob).sum() + by_entropy * entropy.sum()

    masked = np.where(legal, outputs, -np.inf)
    given = torch.tensor(masked, requires_grad=True)
    learning = torch_distributions.MultiCategorical(given, counts).of(torch.tensor(indices))
    ours = distributions.MultiCategorical(masked.astype(np.float32), counts)
    for got in (learning.log_prob.detach(), ours.log_prob(indices)):
        np.testing.assert_allclose(got, log_prob.detach(), atol=1e-4)
    for got in (learning.entropy.detach(), ours.entropy()):
        np.testing.assert_allclose(got, entropy.detach(), atol=1e-4)
    gradient = gradient_of(learning, by_log_prob, by_entropy, given)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss, logits)[0], rtol=1e-6, atol=1e-6)
    assert (gradient[torch.tensor(~legal)] == 0.0).all()
    for drawn in (ours.sample(rng), ours.mode()):
        assert drawn.shape == indices.shape
        assert np.take_along_axis(legal, drawn + np.cumsum((0, *counts[:-1])), axis=1).all()


def gradient_of(
    likelihood: torch_distributions.Likelihood, by_log_prob: torch.Tensor, by_entropy: float, of: torch.Tensor
) -> torch.Tensor:
    loss = (by_log_prob * likelihood.log_prob).sum() + by_entropy * likelihood.entropy.sum()
    return torch.autograd.grad(loss, of)[0]


@settings(deadline=None)
@given(rows=st.integers(1, 30), n=st.integers(1, 8), by_entropy=st.sampled_from([0.0, -0.7]), seed=seeds)
def test_gradients_are_those_of_autograd(rows: int, n: int, by_entropy: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    outputs, drawn, by_log_prob, log_std = (
        torch.tensor(rng.normal(size=shape)) for shape in ((rows, n), (rows, n), (rows,), (n,))
    )
    indices = torch.tensor(rng.integers(0, n, rows))
    logits, mean, std = (tensor.clone().requires_grad_() for tensor in (outputs, outputs, log_std))
    by_textbook = likelihoods.categorical(logits, indices), likelihoods.gaussian(mean, std, drawn)
    ours = torch_distributions.Categorical(logits).of(indices), torch_distributions.Gaussian(mean, std).of(drawn)

    def gradients(of_both: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, ...]:
        losses = [(by_log_prob * log_prob).sum() + by_entropy * entropy.sum() for log_prob, entropy in of_both]
        return torch.autograd.grad(losses, (logits, mean, std))

    torch.testing.assert_close(gradients(ours), gradients(by_textbook))
    for distribution, of in ((ours[0], logits), (ours[1], mean)):  # half of a likelihood alone
        assert torch.autograd.grad(distribution.entropy.sum(), of, retain_graph=True, allow_unused=True)


# --- correlated noise
def test_two_draws_by_hand() -> None:
    noise, rng, same = CorrelatedNoise(0.6), np.random.default_rng(0), np.random.default_rng(0)
    first, second = noise.draw((2, 3), rng), noise.draw((2, 3), rng)
    fresh = [same.standard_normal((2, 3), np.float32) for _ in range(2)]
    np.testing.assert_array_equal(first, fresh[0])
    np.testing.assert_allclose(second, 0.6 * fresh[0] + 0.8 * fresh[1], rtol=1e-6)
    assert second.dtype == np.float32


def drawn(correlation: float, steps: int = 4_000) -> NDArray[np.float32]:
    noise, rng = CorrelatedNoise(correlation), np.random.default_rng(1)
    return np.stack([noise.draw((5,), rng) for _ in range(steps)])


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_distribution_of_each_draw_stays_standard_normal(correlation: float) -> None:
    path = drawn(correlation)
    # The mean of a process with correlation c has (1 + c) / (1 - c) times the variance of independent draws.
    deviation = np.sqrt((1 + correlation) / (1 - correlation) / path.size)
    assert abs(path.mean()) < 4 * deviation
    assert path.std() == pytest.approx(1.0, abs=4 * deviation)
    between = np.mean(path[1:] * path[:-1])
    assert between == pytest.approx(correlation, abs=4 * deviation)
    two_apart = np.mean(path[2:] * path[:-2])
    assert two_apart == pytest.approx(correlation**2, abs=4 * deviation)


def test_another_number_of_environments_begins_a_new_process() -> None:
    noise, rng, same = CorrelatedNoise(0.9), np.random.default_rng(2), np.random.default_rng(2)
    noise.draw((4, 1), rng)
    same.standard_normal((4, 1), np.float32)
    np.testing.assert_array_equal(noise.draw((3, 1), rng), same.standard_normal((3, 1), np.float32))


# --- normal numbers after tanh
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
