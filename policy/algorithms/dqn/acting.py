"""Deep Q-learning, the acting side: epsilon-greedy actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.policy.acting.distributions import EpsilonGreedy
from remuda.policy.acting.inference import Inference
from remuda.policy.acting.weights import Dense, weights_of
from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.parts import InputLayout, features_of, input_layout, units
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, ObservationSpec


class DqnPolicy(Policy):
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
        self._config, self._observation, self._action = config, observation, action
        self._choices = number_of_actions(action)
        self._image, hidden = layout(config, observation)
        self._shapes = _shapes(config, self._image, hidden, features_of(observation, self._image), self._choices)
        self._inference = Inference(chosen, device)
        self._greedy = EpsilonGreedy(config.epsilon_spread)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        require_fit(self._shapes, state, what="policy")
        names = list(
            dict.fromkeys(key.rpartition(".")[0] for key in self._shapes if key.startswith(("torso", "streams")))
        )
        dense = [Dense.of(state, name) for name in names]
        dense.append(_head(state, dueling=self._config.dueling))
        self._inference.load(weights_of(state, dense, "relu", self._image, "trunk"))

    def take_place(self, first: int, of: int) -> None:
        """See Policy: with `epsilon_spread` each environment has an epsilon of its own."""
        self._greedy.take_place(first, of)

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        """Value the actions of observations [n, …]: float32 [n, actions]."""
        return self._inference(self._observation.encode(observations))

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
        """Choose actions [n] of the space's dtype: the best ones, or a random one with probability epsilon."""
        values = self.q_values(observations)
        if deterministic:
            return self._action.to_environment(values.argmax(axis=1))
        return self._action.to_environment(self._greedy(values, exploration["epsilon"], rng))

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Value of the best action in each observation: float32 [n]."""
        values: np.ndarray = self.q_values(observations).max(axis=1)
        return values


def number_of_actions(action: ActionSpec) -> int:
    """How many action values there are. Raises UnsupportedSpaceError where actions cannot be counted."""
    return action.counted(by="dqn, which values each action")


def layout(config: DqnConfig, observation: ObservationSpec) -> tuple[InputLayout | None, tuple[int, ...]]:
    """How a QNetwork reads these observations: its convolutions (of images) and the units of its hidden layers.

    Raises UnsupportedSpaceError.
    """
    image = input_layout(observation, config.convolution)
    return image, units(config.hidden, image, default=(128, 128, 64))


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
