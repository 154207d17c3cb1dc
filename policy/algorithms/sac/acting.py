"""Soft actor-critic, the acting side: draws from the policy's distribution, or takes its mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.twin_critics import SacConfig
from remuda.policy.acting.distributions import Categorical, SquashedGaussian
from remuda.policy.algorithms.twin_critics.acting import RANDOM, TwinCriticPolicy, some_at_random
from remuda.policy.algorithms.twin_critics.layout import TwinCriticLayout, numbers_of
from remuda.policy.spaces import ActionSpec, ObservationSpec


class SacPolicy(TwinCriticPolicy):
    """Of a Box: numbers drawn from a normal distribution and brought within the bounds by tanh."""

    def __init__(
        self,
        config: SacConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        chosen: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        """`chosen` and `device` are Inference's. Raises UnsupportedSpaceError."""
        super().__init__(sac_layout(config, observation, action), observation, chosen=chosen, device=device)
        self._box = action.bounded(by="sac")

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        """Choose actions [n, …] as the environment takes them: what the mean becomes, or drawn."""
        distribution = SquashedGaussian(self.outputs(observations))
        if deterministic:
            return self._box.to_environment(distribution.mode())
        return self._box.to_environment(some_at_random(distribution.sample(rng), exploration, rng))

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """The lower critic's estimate for the best action, with the entropy that is still to come: float32 [n]."""
        best = SquashedGaussian(self.outputs(observations)).mode()
        values: NDArray[np.float32] = self.least_values(observations, best)[:, 0]
        return values


class DiscreteSacPolicy(TwinCriticPolicy):
    """Of a Discrete space: actions drawn by their probabilities."""

    def __init__(
        self,
        config: SacConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        chosen: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        """`chosen` and `device` are Inference's. Raises UnsupportedSpaceError."""
        super().__init__(sac_layout(config, observation, action), observation, chosen=chosen, device=device)
        self._action = action

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        """Choose actions [n] of the space's dtype: the likeliest, or drawn."""
        distribution = Categorical(self.outputs(observations))
        if deterministic:
            return self._action.to_environment(distribution.mode())
        chosen, share = distribution.sample(rng), exploration[RANDOM]
        if share:
            drawn = rng.integers(self._action.outputs, size=len(chosen))
            chosen = np.where(rng.random(len(chosen)) < share, drawn, chosen)
        return self._action.to_environment(chosen)

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """The lower critic's estimates, by the probabilities of the actions, with the entropy that is still to come
        after them: float32 [n]."""
        probabilities = Categorical(self.outputs(observations)).probabilities()
        values: NDArray[np.float32] = (probabilities * self.least_values(observations)).sum(axis=1)
        return values


def sac_layout(config: SacConfig, observation: ObservationSpec, action: ActionSpec) -> TwinCriticLayout:
    """The network's widths. Raises UnsupportedSpaceError."""
    features, outputs = numbers_of(observation, by="sac"), action.outputs
    learned = config.temperature is None
    if action.n is not None:
        return TwinCriticLayout((features, *config.hidden, outputs), (features, *config.hidden, outputs), learned)
    action.bounded(by="sac")
    return TwinCriticLayout((features, *config.hidden, 2 * outputs), (features + outputs, *config.hidden, 1), learned)


def target_entropy(config: SacConfig, action: ActionSpec) -> float:
    """The entropy in nats that a learned temperature aims at."""
    if config.target_entropy is not None:
        return config.target_entropy
    return -float(action.outputs) if action.n is None else config.target_entropy_share * math.log(action.n)
