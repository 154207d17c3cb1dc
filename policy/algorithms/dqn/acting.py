"""Deep Q-learning, the acting side: epsilon-greedy actions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.policy.acting.inference import Inference
from remuda.policy.acting.weights import Dense, weights_of
from remuda.policy.algorithms.q_policy import QPolicy, layout
from remuda.policy.base import Arrays
from remuda.policy.networks.parts import InputLayout, features_of
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, ObservationSpec

HIDDEN = (128, 128, 64)
"""Units of the hidden layers where nobody says otherwise."""


class DqnPolicy(QPolicy):
    """Acts on the weights of a QNetwork."""

    def __init__(
        self,
        config: DqnConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        chosen: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        """`chosen` and `device` are Inference's."""
        super().__init__(config, observation, action)
        self._config = config
        self._image, hidden = layout(config, observation, default=HIDDEN)
        self._shapes = _shapes(config, self._image, hidden, features_of(observation, self._image), self._actions)
        self._inference = Inference(chosen, device)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        require_fit(self._shapes, state, what="policy")
        names = list(
            dict.fromkeys(key.rpartition(".")[0] for key in self._shapes if key.startswith(("torso", "streams")))
        )
        dense = [Dense.of(state, name) for name in names]
        dense.append(_head(state, dueling=self._config.dueling))
        self._inference.load(weights_of(state, dense, "relu", self._image, "trunk"))

    def q_values(self, observations: np.ndarray) -> NDArray[np.float32]:
        """See QPolicy."""
        return self._inference(self._observation.encode(observations))


def _shapes(
    config: DqnConfig, image: InputLayout | None, hidden: tuple[int, ...], features: int, actions: int
) -> dict[str, tuple[int, ...]]:
    """The tensors of QNetwork by name, in its order (a test compares the two)."""
    *torso, last = hidden
    streams = 2 * last if config.dueling else last
    widths = [features, *torso, streams]
    names = [f"torso.{2 * index}" for index in range(len(torso))] + ["streams.0"]
    layers = list(zip(names, widths[:-1], widths[1:], strict=True))
    layers.append(("advantage", last, actions))
    if config.dueling:
        layers.append(("value", last, 1))
    shapes = {} if image is None else image.shapes("trunk")
    for name, inputs, outputs in layers:
        shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
    return shapes


def _head(state: Arrays, *, dueling: bool) -> Dense:
    """The last layer as one matrix and bias. Value plus advantage less its mean is linear in both streams."""
    advantage = Dense.of(state, "advantage")
    if not dueling:
        return advantage
    value, less_mean = Dense.of(state, "value"), advantage.weight - advantage.weight.mean(axis=0)
    of_state = np.broadcast_to(value.weight, less_mean.shape)
    bias = advantage.bias - advantage.bias.mean() + value.bias
    return Dense(np.concatenate((of_state, less_mean), axis=1), bias)
