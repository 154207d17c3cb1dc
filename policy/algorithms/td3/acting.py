"""TD3, the acting side: the actor's action, with noise in collectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.twin_critics import Td3Config
from remuda.policy.acting.distributions import with_normal_noise
from remuda.policy.algorithms.twin_critics.acting import TwinCriticPolicy, some_at_random
from remuda.policy.algorithms.twin_critics.layout import TwinCriticLayout, numbers_of
from remuda.policy.spaces import ActionSpec, ObservationSpec

NOISE = "noise"
"""The exploration of Policy.act that is the standard deviation of the noise on actions in -1 … 1."""


class Td3Policy(TwinCriticPolicy):
    """Takes what the actor's outputs become by tanh."""

    def __init__(
        self,
        config: Td3Config,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        chosen: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        """`chosen` and `device` are Inference's. Raises UnsupportedSpaceError."""
        super().__init__(td3_layout(config, observation, action), observation, chosen=chosen, device=device)
        self._box = action.bounded(by="td3")

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
        """Choose actions [n, …] as the environment takes them: the actor's, or those with noise."""
        best = self._best(observations)
        if deterministic:
            return self._box.to_environment(best)
        noisy = with_normal_noise(best, exploration[NOISE], rng)
        return self._box.to_environment(some_at_random(noisy, exploration, rng))

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """The lower critic's estimate for the actor's action: float32 [n]."""
        values: NDArray[np.float32] = self.least_values(observations, self._best(observations))[:, 0]
        return values

    def _best(self, observations: np.ndarray) -> NDArray[np.float32]:
        best: NDArray[np.float32] = np.tanh(self.outputs(observations))
        return best


def td3_layout(config: Td3Config, observation: ObservationSpec, action: ActionSpec) -> TwinCriticLayout:
    """The network's widths. Raises UnsupportedSpaceError."""
    action.bounded(by="td3")
    features, outputs = numbers_of(observation, by="td3"), action.outputs
    return TwinCriticLayout(
        (features, *config.hidden, outputs), (features + outputs, *config.hidden, 1), has_temperature=False
    )
