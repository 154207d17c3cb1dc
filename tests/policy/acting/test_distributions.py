"""Distributions: acting and learning agree, probabilities are right, and samples follow them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.policy import torch_distributions
from remuda.policy.acting import distributions
from remuda.policy.networks import tensors
from remuda.tests.policy.algorithms import likelihoods

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


def test_random_actions_are_spread_evenly_over_the_legal_ones() -> None:
    legal = np.tile([True, False, True, True, False], (30_000, 1))
    for indices in (
        distributions.drawn_evenly(legal, np.random.default_rng(0)),
        distributions.epsilon_greedy(np.zeros((30_000, 5), np.float32), 1.0, np.random.default_rng(1), legal),
    ):
        shares = np.bincount(indices, minlength=5) / len(legal)
        np.testing.assert_allclose(shares, [1 / 3, 0, 1 / 3, 1 / 3, 0], atol=0.015)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 8), n=st.integers(1, 7), by_entropy=st.sampled_from([0.0, -0.7]), seed=seeds)
def test_masked_distributions_are_those_of_torch_over_the_legal_actions(
    rows: int, n: int, by_entropy: float, seed: int
) -> None:
    """torch's distributions have no masks: they get the logits of only the legal actions, row by row."""
    rng = np.random.default_rng(seed)
    outputs, legal, indices = rng.normal(size=(rows, n)), rng.random((rows, n)) < 0.5, rng.integers(0, n, rows)
    legal[np.arange(rows), indices] = True
    by_log_prob = torch.tensor(rng.normal(size=rows))
    logits = torch.tensor(outputs, requires_grad=True)
    loss = torch.zeros((), dtype=torch.float64)
    expected: list[tuple[float, float]] = []
    for row in range(rows):
        theirs = torch.distributions.Categorical(logits=logits[row][torch.tensor(legal[row])])
        action = torch.tensor(int(np.count_nonzero(legal[row, : indices[row]])))
        log_prob, entropy = theirs.log_prob(action), theirs.entropy()  # type: ignore[no-untyped-call]
        loss = loss + by_log_prob[row] * log_prob + by_entropy * entropy
        expected.append((log_prob.item(), entropy.item()))
    learning = torch_distributions.Categorical(tensors.masked(logits, torch.tensor(legal))).of(torch.tensor(indices))
    ours = distributions.Categorical(distributions.masked(outputs.astype(np.float32), legal))
    for log_probs, entropies in ((part.detach() for part in learning), (ours.log_prob(indices), ours.entropy())):
        np.testing.assert_allclose(np.stack((log_probs, entropies), axis=1), expected, atol=1e-5)
    gradient = gradient_of(learning, by_log_prob, by_entropy, logits)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss, logits)[0])
    assert (gradient[torch.tensor(~legal)] == 0.0).all()


COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=6).map(tuple)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(0, 8), counts=COUNTS, by_entropy=st.sampled_from([0.0, -0.7]), masks=st.booleans(), seed=seeds)
def test_several_indices_are_independent(
    rows: int, counts: tuple[int, ...], by_entropy: float, masks: bool, seed: int
) -> None:
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


def test_several_indices_by_hand() -> None:
    """Two coins, the second with probabilities 3/4 and 1/4, and a die that always shows its last side."""
    logits = np.log(np.array([[0.5, 0.5, 0.25, 0.75, 1e-30, 1e-30, 1.0]], np.float32))
    three = distributions.MultiCategorical(logits, (2, 2, 3))
    assert three.mode().tolist() == [[0, 1, 2]]
    assert three.log_prob(np.array([[1, 0, 2]])).tolist() == [pytest.approx(np.log(0.5 * 0.25))]
    coins = np.log(2.0) - 0.25 * np.log(0.25) - 0.75 * np.log(0.75)
    assert three.entropy().tolist() == [pytest.approx(coins)]
    many = distributions.MultiCategorical(np.tile(logits, (20_000, 1)), (2, 2, 3)).sample(np.random.default_rng(0))
    np.testing.assert_allclose(many.mean(axis=0), [0.5, 0.75, 2.0], atol=0.02)
    assert np.corrcoef(many[:, 0], many[:, 1])[0, 1] == pytest.approx(0.0, abs=0.03)


def test_drawn_numbers_have_the_mean_and_deviation() -> None:
    n = 40_000
    mean = np.tile(np.array([1.0, -2.0], np.float32), (n, 1))
    gaussian = distributions.Gaussian(mean, np.log(np.array([0.5, 2.0], np.float32)))
    drawn = gaussian.sample(np.random.default_rng(0))
    np.testing.assert_allclose(drawn.mean(axis=0), [1.0, -2.0], atol=4 * 2 / np.sqrt(n))
    np.testing.assert_allclose(drawn.std(axis=0), [0.5, 2.0], rtol=0.03)
    np.testing.assert_array_equal(gaussian.mode(), mean)


def test_impossible_actions_leave_entropy_and_gradient_finite() -> None:
    logits = torch.tensor([[0.0, -float("inf")], [-1e9, 0.0]], requires_grad=True)
    learning = torch_distributions.Categorical(logits).of(torch.tensor([0, 1]))
    np.testing.assert_allclose(learning.entropy.detach(), 0.0, atol=1e-6)
    np.testing.assert_allclose(gradient_of(learning, torch.ones(2), 0.5, logits), 0.0, atol=1e-6)
    ours = distributions.Categorical(np.array([[0.0, -1e9], [-1e9, 0.0]], np.float32))
    np.testing.assert_allclose(ours.entropy(), 0.0, atol=1e-6)


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
