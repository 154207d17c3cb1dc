"""Soft actor-critic, the acting side: draws from the policy's distribution, or takes its mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.twin_critics import SacConfig
from remuda.policy.acting.distributions import Categorical, SquashedGaussian, drawn_evenly
from remuda.policy.algorithms.twin_critics.acting import BoxPolicy, TwinCriticPolicy
from remuda.policy.algorithms.twin_critics.layout import TwinCriticLayout
from remuda.policy.spaces import ActionSpec, ObservationSpec


class SacPolicy(BoxPolicy):
    """Numbers drawn from a normal distribution and brought within the bounds by tanh."""

    def best(self, outputs: NDArray[np.float32]) -> np.ndarray:
        """See TwinCriticPolicy: what the mean becomes."""
        return SquashedGaussian(outputs).mode()

    def explored(
        self, outputs: NDArray[np.float32], exploration: Mapping[str, float], rng: np.random.Generator
    ) -> np.ndarray:
        """See TwinCriticPolicy."""
        return SquashedGaussian(outputs).sample(rng)


class DiscreteSacPolicy(TwinCriticPolicy):
    """Actions of a Discrete space, drawn by their probabilities."""

    uses_legal_actions = True

    def best(self, outputs: NDArray[np.float32]) -> np.ndarray:
        """See TwinCriticPolicy: the likeliest."""
        return Categorical(outputs).mode()

    def explored(
        self, outputs: NDArray[np.float32], exploration: Mapping[str, float], rng: np.random.Generator
    ) -> np.ndarray:
        """See TwinCriticPolicy."""
        return Categorical(outputs).sample(rng)

    def drawn_evenly(self, like: np.ndarray, rng: np.random.Generator, legal: NDArray[np.bool_] | None) -> np.ndarray:
        """See TwinCriticPolicy."""
        return rng.integers(self._layout.actor_outputs, size=len(like)) if legal is None else drawn_evenly(legal, rng)

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """The lower critic's estimates, by the probabilities of the actions, with the entropy that is still to come
        after them: float32 [n]."""
        probabilities = Categorical(self.outputs(observations)).probabilities()
        values: NDArray[np.float32] = (probabilities * self.least_values(observations)).sum(axis=1)
        return values


def make_sac_policy(
    config: SacConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    *,
    source_dir: str | None = None,
    chosen: Callable[[str], None] | None = None,
    device: str = "cpu",
) -> TwinCriticPolicy:
    """`chosen` and `device` are ActingNetwork's. Raises UnsupportedSpaceError."""
    layout = sac_layout(config, action)
    if action.n is not None:
        return DiscreteSacPolicy(
            config, layout, observation, action, source_dir=source_dir, chosen=chosen, device=device
        )
    box = action.bounded(by="sac")
    return SacPolicy(config, layout, observation, box, source_dir=source_dir, chosen=chosen, device=device)


def sac_layout(config: SacConfig, action: ActionSpec) -> TwinCriticLayout:
    """The network's layers. Raises UnsupportedSpaceError."""
    outputs, learned = action.outputs, config.temperature is None
    if action.n is not None:
        return TwinCriticLayout(config.hidden, outputs, 0, outputs, learned)
    action.bounded(by="sac", supported="Box, Discrete")
    return TwinCriticLayout(config.hidden, 2 * outputs, outputs, 1, learned)


def target_entropy(config: SacConfig, action: ActionSpec) -> float:
    """The entropy in nats that a learned temperature aims at."""
    if config.target_entropy is not None:
        return config.target_entropy
    return -float(action.outputs) if action.n is None else config.target_entropy_share * math.log(action.n)
