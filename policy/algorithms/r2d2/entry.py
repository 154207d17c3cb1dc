"""R2D2 without torch: layout of the network, acting side, and entry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.q_learning import DqnConfig, R2d2Config
from remuda.config.declaration import Declaration, Sequences
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.acting.recurrent import RecurrentPolicy
from remuda.policy.algorithms.dqn.entry import MEANINGS, DqnPolicy, declared, hidden_layers, number_of_actions
from remuda.policy.entry import BuiltInEntry
from remuda.policy.networks.layouts import RecurrentLayout, require_readable
from remuda.policy.spaces import ActionSpec, ObservationSpec

HIDDEN = (128,)
"""Default units of the hidden layers."""


def layout(config: R2d2Config, observation: ObservationSpec) -> RecurrentLayout:
    """Layout of the network for these observations. Raises UnsupportedSpaceError."""
    require_readable(config, observation)
    hidden = hidden_layers(config, observation, default=HIDDEN)
    return RecurrentLayout(0, hidden, "relu", config.recurrent, config.recurrent_units)


LEAST_SLOPE = 1e-3
"""Same as EPSILON in remuda.policy.networks.tensors, which needs torch."""


def head_config(config: R2d2Config) -> DqnConfig:
    """Settings of the head, a QNetwork on the core's outputs."""
    return DqnConfig(
        hidden=config.head_hidden,
        dueling=config.dueling,
        epsilon_spread=config.epsilon_spread,
        normalize_rewards=False,
    )


def make_r2d2_policy(
    config: R2d2Config, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> RecurrentPolicy:
    """Raises UnsupportedSpaceError."""
    number_of_actions(config, action)
    laid_out = layout(config, observation)
    acts = RescaledDqnPolicy if config.value_rescaling else DqnPolicy
    head = acts(head_config(config), laid_out.remembered, action)
    network = inference.network("r2d2", config, observation, action, timed="encoded")
    return RecurrentPolicy(laid_out, observation, head, network)


class RescaledDqnPolicy(DqnPolicy):
    """A DqnPolicy whose network gives rescaled values."""

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Value of the best action in the environment's own rewards: float32 [n]."""
        return unscaled(super().value(observations))


def unscaled(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Same as remuda.policy.networks.tensors.unscaled, without torch."""
    size = np.abs(numbers, dtype=np.float64)
    inner = size + 1.0 + LEAST_SLOPE
    root = 2.0 * inner / (np.sqrt(1.0 + 4.0 * LEAST_SLOPE * inner) + 1.0)
    values: NDArray[np.float32] = (np.sign(numbers) * (root * root - 1.0)).astype(np.float32)
    return values


class R2d2Entry(BuiltInEntry[R2d2Config]):
    """See AlgorithmEntry."""

    settings = R2d2Config
    acts = staticmethod(make_r2d2_policy)
    learner = "remuda.policy.algorithms.r2d2.learning:R2d2"
    meanings = MEANINGS

    def declaration(self, config: ExperimentConfig, settings: R2d2Config) -> Declaration:
        rows = Sequences(
            burn_in_steps=settings.burn_in_steps,
            sequence_steps=settings.sequence_steps,
            overlap_steps=settings.overlap_steps,
            n_step=settings.n_step,
            discount=settings.discount,
        )
        return declared(config, settings, rows)
