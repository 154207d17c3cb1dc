"""Distributions of actions in numpy, for acting. For learning see remuda.policy.torch_distributions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from remuda.policy.spaces import OutputName


@dataclass(frozen=True)
class Run:
    """Neighbouring components with the same number of values."""

    values: int
    """Number of values per component."""
    number: int
    """Of components."""
    components: slice
    """Their indices among all components."""
    logits: slice
    """Indices of their logits: values * number."""


@cache
def runs_of(counts: tuple[int, ...]) -> tuple[Run, ...]:
    """Returns the runs of components with these numbers of values, in order."""
    runs: list[Run] = []
    component = logit = 0
    for values, alike in itertools.groupby(counts):
        number = len(list(alike))
        own, theirs = slice(component, component + number), slice(logit, logit + values * number)
        runs.append(Run(values, number, own, theirs))
        component, logit = own.stop, theirs.stop
    return tuple(runs)


_LOG_2_PI = math.log(2.0 * math.pi)


def masked(numbers: NDArray[np.float32], legal: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    """Logits or values [rows, n], -inf for illegal actions, so an illegal action is neither best nor drawn.
    `legal` bool [rows, n] has at least one legal action per row; None: all are legal."""
    return numbers if legal is None else np.where(legal, numbers, np.float32(-np.inf))


def expected_returns(logits: NDArray[np.float32], returns: NDArray[np.float32]) -> NDArray[np.float32]:
    """Expected returns [...] of categorical distributions, by logits [..., atoms] of these returns [atoms]."""
    probability = np.exp(logits - logits.max(axis=-1, keepdims=True))
    expected: NDArray[np.float32] = (probability @ returns) / probability.sum(axis=-1)
    return expected


def drawn_evenly(legal: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draws indices int64 [rows], uniformly among the legal actions [rows, n] of each row."""
    each: NDArray[np.int64] = np.count_nonzero(legal, axis=1)
    ordinal: NDArray[np.int64] = rng.integers(each)
    indices: NDArray[np.int64] = np.count_nonzero(legal.cumsum(axis=1) <= ordinal[:, None], axis=1)
    return indices


def epsilon_greedy(
    values: NDArray[np.float32],
    epsilon: float | NDArray[np.float64],
    rng: np.random.Generator,
    legal: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Indices int64 [rows] of the highest values [rows, n], or, with probability epsilon (one number, or [rows]), of a
    uniformly drawn action. Both are among the `legal` actions, bool [rows, n]."""
    best: NDArray[np.int64] = masked(values, legal).argmax(axis=1)
    explores = rng.random(len(best)) < epsilon
    drawn = rng.integers(values.shape[1], size=len(best)) if legal is None else drawn_evenly(legal, rng)
    return np.where(explores, drawn, best)


def epsilon_powers(spread: float, first: int, number: int, of: int) -> NDArray[np.float64]:
    """The powers of epsilon with which `number` environments from `first` on explore, of the `of` of a run: float64
    [number], 1 + spread * i / (of - 1) for environment i (Horgan et al. 2018, section 4)."""
    numbers = np.minimum(np.arange(first, first + number), of - 1)
    powers: NDArray[np.float64] = 1.0 + spread * numbers / max(1, of - 1)
    return powers


class EpsilonGreedy:
    """Chooses as `epsilon_greedy` does, with a separate epsilon per environment once `take_place` was called."""

    def __init__(self, spread: float) -> None:
        """`spread`: see `epsilon_powers`; 0 is the same epsilon for all."""
        self._spread = spread
        self._env_offset: tuple[int, int] | None = None

    def take_place(self, first: int, of: int) -> None:
        self._env_offset = first, of

    def __call__(
        self,
        values: NDArray[np.float32],
        epsilon: float,
        rng: np.random.Generator,
        legal: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Indices int64 [rows] of values [rows, n]."""
        if self._env_offset is None or not self._spread:
            return epsilon_greedy(values, epsilon, rng, legal)
        first, of = self._env_offset
        return epsilon_greedy(values, epsilon ** epsilon_powers(self._spread, first, len(values), of), rng, legal)


class Categorical:
    """An index of n per row, by logits float32 [rows, n]. Indices with a logit of -inf are never drawn."""

    def __init__(self, logits: NDArray[np.float32]) -> None:
        self._shifted = logits - logits.max(axis=1, keepdims=True)

    def sample(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draws int64 [rows], by a uniform number per row."""
        cumulated = self._exponentials.cumsum(axis=1)
        # A uniform number is below 1, so the product in float64 stays below the total and the index below n.
        drawn = rng.random((len(cumulated), 1)) * cumulated[:, -1:]
        indices: NDArray[np.int64] = np.count_nonzero(cumulated <= drawn, axis=1)
        return indices

    def mode(self) -> NDArray[np.int64]:
        """The likeliest: int64 [rows]."""
        indices: NDArray[np.int64] = self._shifted.argmax(axis=1)
        return indices

    def log_prob(self, actions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Log probability of indices [rows]: float32 [rows]."""
        chosen: NDArray[np.float32] = self._log_probs[np.arange(len(actions)), actions]
        return chosen

    def entropy(self) -> NDArray[np.float32]:
        """In nats: float32 [rows]."""
        probabilities = np.exp(self._log_probs)
        entropy: NDArray[np.float32] = -(probabilities * np.where(probabilities > 0, self._log_probs, 0)).sum(axis=1)
        return entropy

    def probabilities(self) -> NDArray[np.float32]:
        """Probabilities of all indices: float32 [rows, n]."""
        probabilities: NDArray[np.float32] = np.exp(self._log_probs)
        return probabilities

    @functools.cached_property
    def _exponentials(self) -> NDArray[np.float32]:
        exponentials: NDArray[np.float32] = np.exp(self._shifted)
        return exponentials

    @functools.cached_property
    def _log_probs(self) -> NDArray[np.float32]:
        log_probs: NDArray[np.float32] = self._shifted - np.log(self._exponentials.sum(axis=1, keepdims=True))
        return log_probs


class MultiCategorical:
    """Independent indices per row, an index per component: logits float32 [rows, sum of counts], in the order of the
    components. Indices with a logit of -inf are never drawn."""

    def __init__(self, logits: NDArray[np.float32], counts: tuple[int, ...]) -> None:
        """`counts`: number of values of each component."""
        self._rows = len(logits)
        self._runs = [(Categorical(logits[:, run.logits].reshape(-1, run.values)), run) for run in runs_of(counts)]

    def sample(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draws int64 [rows, components], by a uniform number per component."""
        return self._joined([one.sample(rng) for one, _ in self._runs])

    def mode(self) -> NDArray[np.int64]:
        """The likeliest: int64 [rows, components]."""
        return self._joined([one.mode() for one, _ in self._runs])

    def log_prob(self, actions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Log probability of indices [rows, components], the sum over the components: float32 [rows]."""
        return self._summed([one.log_prob(actions[:, run.components].ravel()) for one, run in self._runs])

    def entropy(self) -> NDArray[np.float32]:
        """In nats, the sum over the components: float32 [rows]."""
        return self._summed([one.entropy() for one, _ in self._runs])

    def _joined(self, indices: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        own = zip(indices, self._runs, strict=True)
        return np.concatenate([each.reshape(self._rows, run.number) for each, (_, run) in own], axis=1)

    def _summed(self, numbers: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        own = zip(numbers, self._runs, strict=True)
        total = np.zeros(self._rows, np.float32)
        for each, (_, run) in own:
            total += each.reshape(self._rows, run.number).sum(axis=1)
        return total


def categorical(logits: NDArray[np.float32], counts: tuple[int, ...]) -> Categorical | MultiCategorical:
    """Makes the distribution over the values of a Discrete space, or, with `counts` (number of values per component),
    over the values of each component; see ActionSpec."""
    return MultiCategorical(logits, counts) if counts else Categorical(logits)


class Gaussian:
    """Independent normal numbers: mean float32 [rows, k], logarithm of the standard deviation float32 [k]."""

    def __init__(self, mean: NDArray[np.float32], log_std: NDArray[np.float32]) -> None:
        self._mean = mean
        self._log_std = log_std

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw float32 [rows, k]."""
        return self.drawn_by(rng.standard_normal(self._mean.shape, np.float32))

    def drawn_by(self, noise: NDArray[np.float32]) -> NDArray[np.float32]:
        """Maps standard normal `noise` [rows, k] to numbers float32 [rows, k]."""
        drawn: NDArray[np.float32] = self._mean + noise * np.exp(self._log_std)
        return drawn

    def mode(self) -> NDArray[np.float32]:
        """The mean."""
        return self._mean

    def log_prob(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Log density of numbers [rows, k], summed over k: float32 [rows]."""
        distance = (actions - self._mean) * np.exp(-self._log_std)
        density: NDArray[np.float32] = -0.5 * (distance * distance).sum(axis=1)
        normaliser = np.float32(self._log_std.sum() + 0.5 * len(self._log_std) * _LOG_2_PI)
        return density - normaliser

    def entropy(self) -> NDArray[np.float32]:
        """Differential entropy in nats: float32 [rows]."""
        total = self._log_std.sum() + 0.5 * len(self._log_std) * (1.0 + _LOG_2_PI)
        return np.full(len(self._mean), total, np.float32)


LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
"""Bounds of the logarithm of a network's standard deviation, as in SAC's first implementation."""


class SquashedGaussian:
    """Independent normal numbers brought to -1 … 1 by tanh: outputs float32 [rows, 2 k], k means before tanh, then k
    logarithms of standard deviations, which are held within LOG_STD_MIN … LOG_STD_MAX."""

    def __init__(self, outputs: NDArray[np.float32]) -> None:
        self._mean, self._log_std = np.split(outputs, 2, axis=1)

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw float32 [rows, k]."""
        noise: NDArray[np.float32] = rng.standard_normal(self._mean.shape, np.float32)
        noise *= np.exp(self._log_std.clip(LOG_STD_MIN, LOG_STD_MAX))
        noise += self._mean
        return np.tanh(noise, out=noise)

    def mode(self) -> NDArray[np.float32]:
        """tanh of the mean: float32 [rows, k]."""
        mode: NDArray[np.float32] = np.tanh(self._mean)
        return mode


def with_normal_noise(actions: NDArray[np.float32], std: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Add normal numbers of this standard deviation to actions [rows, k], and hold the sums within -1 … 1."""
    noise: NDArray[np.float32] = rng.standard_normal(actions.shape, np.float32)
    noise *= np.float32(std)
    noise += actions
    return noise.clip(-1.0, 1.0, out=noise)


def best(name: OutputName, outputs: NDArray[np.float32], counts: tuple[int, ...] = ()) -> np.ndarray:
    """The best actions by outputs [n, outputs]: indices [n], or of `counts` [n, components], or numbers [n, k]."""
    if name == "squashed_gaussian":
        return SquashedGaussian(outputs).mode()
    if name in ("action_mean", "unit_action"):
        return outputs
    return categorical(outputs, counts).mode()


def explored(
    name: OutputName,
    outputs: NDArray[np.float32],
    exploration: Mapping[str, float],
    rng: np.random.Generator,
    *,
    counts: tuple[int, ...] = (),
    legal: NDArray[np.bool_] | None = None,
) -> np.ndarray:
    """Draws the actions of collectors, in the same form, from any outputs except `action_mean`. Illegal actions have
    outputs of -inf. The share `epsilon` of random actions is drawn from the `legal` actions."""
    if name == "q_values":
        return epsilon_greedy(outputs, exploration["epsilon"], rng, legal)
    if name == "logits":
        return categorical(outputs, counts).sample(rng)
    if name == "squashed_gaussian":
        return SquashedGaussian(outputs).sample(rng)
    assert name == "unit_action", name
    return with_normal_noise(outputs, exploration["noise"], rng)


class CorrelatedNoise:
    """Noise with correlation in time: a stationary autoregressive process of order one per number. Each draw is
    standard normal, with the given correlation to the draw before. With 0 the draws are independent.

    On-policy algorithms explore by it (Hollenstein et al. 2024). A single action has the distribution of the policy.
    Given the actions before, it does not, so log probabilities are approximations.
    """

    def __init__(self, correlation: float) -> None:
        """`correlation`: 0 <= correlation < 1."""
        self._kept, self._fresh = np.float32(correlation), np.float32(math.sqrt(1.0 - correlation**2))
        self._last: NDArray[np.float32] | None = None

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
        """Draws float32 of this shape. A new shape begins a new process."""
        noise: NDArray[np.float32] = rng.standard_normal(shape, np.float32)
        if self._kept and self._last is not None and self._last.shape == shape:
            noise *= self._fresh
            noise += self._kept * self._last
        self._last = noise
        return noise
