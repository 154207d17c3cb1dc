"""The acting side of SAC and TD3, without what is different between them: weights, values, and random actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.twin_critics import TwinCriticConfig
from remuda.config.declaration import Schedule
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.inference import Inference
from remuda.policy.algorithms.twin_critics.layout import CRITICS, TwinCriticLayout, least
from remuda.policy.base import Arrays, Policy
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ObservationSpec

RANDOM = "random"
"""The exploration of Policy.act that is the share of actions drawn evenly from all there are."""


class TwinCriticPolicy(Policy):
    """Acts on the state of a TwinCriticNetwork. A subclass says what the actor's outputs mean."""

    def __init__(
        self,
        layout: TwinCriticLayout,
        observation: ObservationSpec,
        *,
        chosen: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        """`chosen` and `device` are Inference's."""
        self._layout, self._observation = layout, observation
        self._shapes = layout.shapes()
        self._actor = Inference(chosen, device)
        self._critics = [Inference(device=device) for _ in range(CRITICS)]

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        require_fit(self._shapes, state, what="policy")
        self._actor.load(self._layout.actor_weights(state))
        for critic, weights in zip(self._critics, self._layout.critic_weights(state), strict=True):
            critic.load(weights)

    def outputs(self, observations: np.ndarray) -> NDArray[np.float32]:
        """The actor's outputs for observations [n, …]: float32 [n, outputs]."""
        return self._actor(self._observation.encode(observations))

    def least_values(self, observations: np.ndarray, actions: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """The smaller of both critics' values of observations [n, …], and of actions in -1 … 1, float32 [n, k], where
        the critics read those: float32 [n, values]."""
        seen = self._observation.encode(observations)
        inputs = seen if actions is None else np.concatenate((seen, actions), axis=1)
        return least([critic(inputs) for critic in self._critics])


def random_at_first(config: ExperimentConfig, settings: TwinCriticConfig) -> dict[str, Schedule]:
    """The exploration RANDOM: all actions until `random_env_steps`, none from then on, nor where nothing is learned."""
    steps = config.buffer.min_rows if settings.random_env_steps is None else settings.random_env_steps
    if config.learner.inference or not steps:
        return {RANDOM: ((0, 0.0),)}
    points = ((0, 1.0), (steps, 0.0)) if steps == 1 else ((0, 1.0), (steps - 1, 1.0), (steps, 0.0))
    return {RANDOM: points}


def some_at_random(
    chosen: NDArray[np.float32], exploration: Mapping[str, float], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Put numbers drawn evenly from -1 … 1 in place of the exploration's share of the actions [n, k]."""
    share = exploration[RANDOM]
    if not share:
        return chosen
    drawn = rng.uniform(-1.0, 1.0, chosen.shape).astype(np.float32)
    return np.where(rng.random((len(chosen), 1)) < share, drawn, chosen)
