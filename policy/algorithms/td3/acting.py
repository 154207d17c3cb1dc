"""TD3, the acting side: the actor's action, with noise in collectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.twin_critics import Td3Config
from remuda.policy.acting.distributions import with_normal_noise
from remuda.policy.algorithms.twin_critics.acting import BoxPolicy
from remuda.policy.algorithms.twin_critics.layout import TwinCriticLayout
from remuda.policy.spaces import ActionSpec

NOISE = "noise"
"""The exploration of Policy.act that is the standard deviation of the noise on actions in -1 … 1."""


class Td3Policy(BoxPolicy):
    """Takes what the actor's outputs become by tanh."""

    def best(self, outputs: NDArray[np.float32]) -> np.ndarray:
        """See TwinCriticPolicy."""
        best: NDArray[np.float32] = np.tanh(outputs)
        return best

    def explored(
        self, outputs: NDArray[np.float32], exploration: Mapping[str, float], rng: np.random.Generator
    ) -> np.ndarray:
        """See TwinCriticPolicy: the best with noise."""
        return with_normal_noise(np.tanh(outputs), exploration[NOISE], rng)


def td3_layout(config: Td3Config, action: ActionSpec) -> TwinCriticLayout:
    """The network's layers. Raises UnsupportedSpaceError."""
    action.bounded(by="td3")
    return TwinCriticLayout(config.hidden, action.outputs, action.outputs, 1, has_temperature=False)
