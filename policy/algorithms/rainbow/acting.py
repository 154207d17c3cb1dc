"""Rainbow, the acting side: the action of the highest expected return, with noise in the network's weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.policy.acting.distributions import EpsilonGreedy
from remuda.policy.acting.inference import Inference
from remuda.policy.acting.weights import Dense, weights_of
from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.parts import InputLayout, features_of, input_layout, units
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, ObservationSpec

EPSILON, NOISE = "epsilon", "noise"
"""What exploration is called in the declaration: the share of random actions, or the size of the noise."""

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class NoisyDense:
    """A fully connected layer whose weights may have noise; see network.NoisyLinear."""

    weight: _Floats
    """[inputs, outputs]."""
    bias: _Floats
    weight_sigma: _Floats | None
    bias_sigma: _Floats | None

    @classmethod
    def of(cls, state: Arrays, name: str) -> NoisyDense:
        """Take a layer out of a network's state, noisy or not."""
        sigma = state.get(f"{name}.weight_sigma")
        return cls(
            state[f"{name}.weight"].T,
            state[f"{name}.bias"],
            None if sigma is None else sigma.T,
            state.get(f"{name}.bias_sigma"),
        )

    def __call__(self, inputs: _Floats, scale: float, rng: np.random.Generator) -> _Floats:
        """[n, inputs] -> [n, outputs]. Each row has noise of its own, `scale` times as large as learned; 0: none."""
        outputs: _Floats = inputs @ self.weight + self.bias
        if self.weight_sigma is None or self.bias_sigma is None or scale == 0.0:
            return outputs
        of_inputs, of_outputs = (_noise(rng, inputs.shape), _noise(rng, outputs.shape))
        outputs += np.float32(scale) * of_outputs * ((inputs * of_inputs) @ self.weight_sigma + self.bias_sigma)
        return outputs


class RainbowPolicy(Policy):
    """Acts on the weights of a RainbowNetwork."""

    def __init__(
        self,
        config: RainbowConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        chosen: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        """`chosen` and `device` are Inference's, which computes the layers before the streams."""
        self._config, self._observation, self._action = config, observation, action
        self._actions = number_of_actions(action)
        self._image, self._hidden = layout(config, observation)
        self._shapes = _shapes(config, self._image, self._hidden, features_of(observation, self._image), self._actions)
        self._inference = Inference(chosen, device)
        self._greedy = EpsilonGreedy(config.epsilon_spread)
        self._layers: dict[str, NoisyDense] = {}
        self._returns = np.linspace(config.v_min, config.v_max, config.atoms, dtype=np.float32)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        require_fit(self._shapes, state, what="policy")
        torso = [Dense.of(state, f"torso.{2 * index}") for index in range(len(self._hidden) - 1)]
        self._inference.load(weights_of(state, torso, "relu", self._image, "trunk"))
        names = ("streams", "advantage", "value") if self._config.dueling else ("streams", "advantage")
        self._layers = {name: NoisyDense.of(state, name) for name in names}

    def take_place(self, first: int, of: int) -> None:
        """See Policy: with `epsilon_spread` each environment has an epsilon of its own."""
        self._greedy.take_place(first, of)

    def q_values(self, observations: np.ndarray, noise: float, rng: np.random.Generator) -> _Floats:
        """The expected return of each action of observations [n, …]: float32 [n, actions]."""
        features = self._inference(self._observation.encode(observations))
        if len(self._hidden) > 1:  # Inference leaves its last layer linear
            features = np.maximum(features, np.float32(0.0))
        hidden = np.maximum(self._layers["streams"](features, noise, rng), np.float32(0.0))
        if not self._config.dueling:
            return self._expectation(self._advantage(hidden, noise, rng))
        of_state, of_actions = np.split(hidden, 2, axis=1)
        advantage = self._advantage(of_actions, noise, rng)
        value = self._layers["value"](of_state, noise, rng)[:, None]
        return self._expectation(value + advantage - advantage.mean(axis=1, keepdims=True))

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
        """Choose actions [n] of the space's dtype: the best ones, by weights with noise or with a share of random
        actions, unless `deterministic`."""
        noise = 0.0 if deterministic else exploration.get(NOISE, 0.0)
        values = self.q_values(observations, noise, rng)
        epsilon = 0.0 if deterministic else exploration.get(EPSILON, 0.0)
        return self._action.to_environment(self._greedy(values, epsilon, rng) if epsilon else values.argmax(axis=1))

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """The expected return of the best action, without noise: float32 [n]."""
        values: np.ndarray = self.q_values(observations, 0.0, np.random.default_rng(0)).max(axis=1)
        return values

    def _advantage(self, hidden: _Floats, noise: float, rng: np.random.Generator) -> _Floats:
        return self._layers["advantage"](hidden, noise, rng).reshape(len(hidden), self._actions, -1)

    def _expectation(self, outputs: _Floats) -> _Floats:
        """As ReturnDistribution.expectation: [n, actions, atoms] -> [n, actions]."""
        if self._config.distribution == "quantile":
            mean: _Floats = outputs.mean(axis=2)
            return mean
        probability = np.exp(outputs - outputs.max(axis=2, keepdims=True))
        expected: _Floats = (probability @ self._returns) / probability.sum(axis=2)
        return expected


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> _Floats:
    drawn = rng.standard_normal(shape, np.float32)
    return np.copysign(np.sqrt(np.abs(drawn)), drawn)


def number_of_actions(action: ActionSpec) -> int:
    """How many actions are valued. Raises UnsupportedSpaceError where actions cannot be counted."""
    return action.counted(by="rainbow, which values each action")


def layout(config: RainbowConfig, observation: ObservationSpec) -> tuple[InputLayout | None, tuple[int, ...]]:
    """How a RainbowNetwork reads these observations: its convolutions (of images) and the units of its hidden layers.

    Raises UnsupportedSpaceError.
    """
    image = input_layout(observation, config.convolution)
    return image, units(config.hidden, image, default=(128, 128))


def _shapes(
    config: RainbowConfig, image: InputLayout | None, hidden: tuple[int, ...], features: int, actions: int
) -> dict[str, tuple[int, ...]]:
    """The tensors of RainbowNetwork by name (a test compares the two)."""
    *torso, last = hidden
    widths = [features, *torso]
    shapes = {} if image is None else image.shapes("trunk")
    for index, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        shapes |= {f"torso.{2 * index}.weight": (outputs, inputs), f"torso.{2 * index}.bias": (outputs,)}
    layers = {
        "streams": (widths[-1], 2 * last if config.dueling else last),
        "advantage": (last, actions * config.atoms),
    }
    if config.dueling:
        layers["value"] = (last, config.atoms)
    for name, (inputs, outputs) in layers.items():
        shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
        if config.noisy:
            shapes |= {f"{name}.weight_sigma": (outputs, inputs), f"{name}.bias_sigma": (outputs,)}
    return shapes
