"""Noisy layers: the noise has the variance of the theory, and is drawn from the given generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from remuda.policy.algorithms.rainbow.entry import NoisyDense
from remuda.policy.algorithms.rainbow.learning import NoisyLinear
from remuda.tests.policy.algorithms.rainbow.cases import SMALL, acting, rainbow
from remuda.tests.policy.cases import answered, batch

DRAWS = 5_000
ABSOLUTE_NORMAL = float(np.sqrt(2.0 / np.pi))
"""The mean of |x| of a normal number: the variance of sign(x) sqrt(|x|)."""


def layer() -> NoisyLinear:
    torch.manual_seed(0)
    return NoisyLinear(3, 2, 0.5)


def theory(inputs: np.ndarray, made: NoisyLinear) -> np.ndarray:
    """Variance of each output: products of two independent f(x), and the bias with one of them."""
    weight, bias = (part.detach().numpy() for part in (made.weight_sigma, made.bias_sigma))
    variance: np.ndarray = ABSOLUTE_NORMAL**2 * (inputs**2 @ weight.T**2) + ABSOLUTE_NORMAL * bias**2
    return variance


def test_noise_of_the_learner_has_the_mean_and_variance_of_theory() -> None:
    made, generator = layer(), torch.Generator().manual_seed(1)
    inputs = torch.tensor([[1.0, -2.0, 0.5]])

    def drawn(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.size(), generator=generator)

    with torch.no_grad():
        outputs = torch.cat([made(inputs, drawn) for _ in range(DRAWS)]).numpy()
        mean = made(inputs).numpy()[0]
    variance = theory(inputs.numpy(), made)[0]
    np.testing.assert_allclose(outputs.mean(axis=0), mean, atol=5 * np.sqrt(variance.max() / DRAWS))
    np.testing.assert_allclose(outputs.var(axis=0), variance, rtol=0.1)


def test_noise_of_collectors_has_the_same_size_and_each_row_its_own() -> None:
    made = layer()
    state = {f"x.{name}": value.detach().numpy() for name, value in made.named_parameters()}
    dense = NoisyDense.of(state, "x")
    inputs = np.tile(np.array([[1.0, -2.0, 0.5]], np.float32), (DRAWS, 1))
    outputs = dense(inputs, 1.0, np.random.default_rng(0))
    np.testing.assert_allclose(outputs.var(axis=0), theory(inputs[:1], made)[0], rtol=0.1)
    np.testing.assert_allclose(
        dense(inputs, 2.0, np.random.default_rng(0)).var(axis=0), 4 * outputs.var(axis=0), rtol=0.1
    )
    with torch.no_grad():
        quiet = made(torch.from_numpy(inputs[:1])).numpy()
    np.testing.assert_allclose(dense(inputs[:1], 0.0, np.random.default_rng(0)), quiet, atol=1e-6)


def test_collectors_act_with_noise_and_evaluations_without() -> None:
    algorithm = rainbow()
    policy = acting(algorithm)
    observations = np.random.default_rng(3).normal(size=(500, 4)).astype(np.float32)
    rng = np.random.default_rng(0)
    best = [policy.act(observations, {"noise": 1.0}, rng, deterministic=True).tolist() for _ in range(2)]
    noisy = [policy.act(observations, {"noise": 1.0}, rng, deterministic=False).tolist() for _ in range(2)]
    assert best[0] == best[1]
    assert noisy[0] != noisy[1]
    assert policy.act(observations, {"noise": 0.0}, rng, deterministic=False).tolist() == best[0]


@pytest.mark.parametrize("noisy_epsilon", [False, True])
def test_an_exported_policy_samples_as_collectors_act(noisy_epsilon: bool) -> None:
    """Compared by the share of actions that are not the best: those of the noise, and half of the random ones."""
    settings = SMALL.model_copy(update={"noisy_epsilon": noisy_epsilon, "epsilon_end": 0.5})
    algorithm = rainbow(settings)
    observation = np.random.default_rng(3).normal(size=(1, 4)).astype(np.float32)
    portable, policy = algorithm.portable(), acting(algorithm, settings)
    torch.manual_seed(0)
    best = answered(portable, "act", observation)[0]
    sampled = np.array([answered(portable, "sample", observation)[0] != best for _ in range(DRAWS // 10)]).mean()
    explores = {"noise": 1.0} | ({"epsilon": 0.5} if noisy_epsilon else {})
    rows = np.tile(observation, (DRAWS, 1))
    by_noise = policy.act(rows, {"noise": 1.0}, np.random.default_rng(0), deterministic=False) != best
    acted = policy.act(rows, explores, np.random.default_rng(1), deterministic=False) != best
    assert 0.02 < by_noise.mean() < 0.48
    assert acted.mean() == pytest.approx(by_noise.mean() / 2 + 0.25 if noisy_epsilon else by_noise.mean(), abs=0.02)
    assert sampled == pytest.approx(acted.mean(), abs=0.05)


def test_the_size_of_the_noise_is_reported_as_the_setting_gives_it() -> None:
    assert float(layer().relative_sigma()) == pytest.approx(0.5)
    algorithm = rainbow(SMALL.model_copy(update={"noisy_sigma": 0.3}))
    algorithm.learn(batch(np.random.default_rng(0)))
    sizes = []
    for name, inputs in (("streams", 16), ("advantage", 8), ("value", 8)):  # weights of the parts that have noise
        sigma = algorithm.acting_state()[f"{name}.weight_sigma"]
        assert sigma.shape[1] == inputs
        sizes.append(np.abs(sigma).mean() * np.sqrt(inputs))
    told = algorithm.learn(batch(np.random.default_rng(1))).metrics["noise_sigma"]  # from before its update
    assert float(torch.as_tensor(told)) == pytest.approx(np.mean(sizes), rel=1e-5)
    assert float(torch.as_tensor(told)) == pytest.approx(0.3, abs=0.01)
