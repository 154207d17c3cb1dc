"""R2D2, the acting side: epsilon-greedy actions by values that remember the episode."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.q_learning import DqnConfig, R2d2Config
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.acting.recurrent import RecurrentPolicy
from remuda.policy.algorithms.dqn.acting import DqnPolicy
from remuda.policy.algorithms.q_policy import number_of_actions
from remuda.policy.algorithms.r2d2.layout import layout
from remuda.policy.spaces import ActionSpec, ObservationSpec

if TYPE_CHECKING:
    from torch import nn

LEAST_SLOPE = 1e-3
"""That of remuda.policy.networks.rescaling, which needs torch."""


def head_config(config: R2d2Config) -> DqnConfig:
    """The settings of the head: a QNetwork that reads what the core remembers."""
    return DqnConfig(hidden=config.head_hidden, dueling=config.dueling, epsilon_spread=config.epsilon_spread)


def make_r2d2_policy(
    config: R2d2Config,
    observation: ObservationSpec,
    action: ActionSpec,
    inference: Inference = PLAIN,
) -> RecurrentPolicy:
    """Raises UnsupportedSpaceError."""
    number_of_actions(config, action)
    laid_out = layout(config, observation)
    acts = RescaledDqnPolicy if config.value_rescaling else DqnPolicy
    head = acts(head_config(config), laid_out.remembered, action)
    make = functools.partial(_network, config, observation, action, inference.source_dir)
    return RecurrentPolicy(laid_out, observation, head, make, inference)


def _network(config: R2d2Config, observation: ObservationSpec, action: ActionSpec, source_dir: str | None) -> nn.Module:
    from remuda.policy.algorithms.r2d2.network import make_network  # not above: most collectors need no torch

    return make_network(config, observation, action, source_dir)


class RescaledDqnPolicy(DqnPolicy):
    """Its network's values are rescaled ones."""

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Value of the best action in the environment's own rewards: float32 [n]."""
        return unscaled(super().value(observations))


def unscaled(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """What remuda.policy.networks.rescaling.unscaled does, without torch."""
    size = np.abs(numbers, dtype=np.float64)
    inner = size + 1.0 + LEAST_SLOPE
    root = 2.0 * inner / (np.sqrt(1.0 + 4.0 * LEAST_SLOPE * inner) + 1.0)
    values: NDArray[np.float32] = (np.sign(numbers) * (root * root - 1.0)).astype(np.float32)
    return values
