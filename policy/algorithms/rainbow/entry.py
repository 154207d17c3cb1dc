"""Rainbow without torch: acting side and entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.config.declaration import Declaration, Steps
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Schedule
from remuda.policy.acting.distributions import expected_returns
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.algorithms.dqn.entry import EPSILON, MEANINGS, METRICS, QPolicy, declared
from remuda.policy.base import Arrays
from remuda.policy.entry import BuiltInEntry
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.schedules import epsilon_schedule
from remuda.policy.spaces import ActionSpec, ObservationSpec

NOISE = "noise"
"""Name of the exploration of Policy.act: the size of the noise, relative to the learned size."""
NOISE_SIGMA = "noise_sigma"
"""Metric for the present size of the learned noise, on the scale of RainbowConfig.noisy_sigma."""

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class NoisyDense:
    """A fully connected layer with optional noise in its weights; see learning.NoisyLinear."""

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
        """[n, inputs] -> [n, outputs]. Each row has separate noise, `scale` times the learned size; 0: no noise."""
        outputs: _Floats = inputs @ self.weight + self.bias
        if self.weight_sigma is None or self.bias_sigma is None or scale == 0.0:
            return outputs
        of_inputs, of_outputs = (_noise(rng, inputs.shape), _noise(rng, outputs.shape))
        outputs += np.float32(scale) * of_outputs * ((inputs * of_inputs) @ self.weight_sigma + self.bias_sigma)
        return outputs


class RainbowPolicy(QPolicy):
    """Acts on the weights of a RainbowNetwork, or of a network of the user's."""

    def __init__(
        self, config: RainbowConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
    ) -> None:
        """Raises UnsupportedSpaceError."""
        super().__init__(config, observation, action, inference, folder="rainbow", timed="features")
        self._config = config
        self._layers: dict[str, NoisyDense] = {}
        self._names = ["streams", "advantage", *(["value"] if config.dueling else [])]
        if config.network is not None:
            self._names = []  # that network gives the distributions itself
        self._returns = np.linspace(config.v_min, config.v_max, config.atoms, dtype=np.float32)

    def load_state(self, state: Arrays) -> None:
        """See QPolicy."""
        try:
            layers = {name: NoisyDense.of(state, name) for name in self._names}
        except KeyError as error:
            raise StateMismatchError([f"policy: missing {error.args[0]}"]) from error
        super().load_state(state)
        self._layers = layers

    def q_values(self, observations: np.ndarray) -> _Floats:
        """See QPolicy: expected returns, without noise."""
        return self._values(observations, 0.0, np.random.default_rng(0))

    def exploring_values(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        state: np.ndarray | None,
    ) -> _Floats:
        """See QPolicy: with noise of the size NOISE in the weights."""
        return self._values(observations, exploration.get(NOISE, 0.0), rng)

    def _values(self, observations: np.ndarray, noise: float, rng: np.random.Generator) -> _Floats:
        features = self._network("features", self._observation.encode(observations))
        if not self._names:
            return self._expectation(features.reshape(len(features), self._actions, -1))
        hidden = np.maximum(self._layers["streams"](features, noise, rng), np.float32(0.0))
        if not self._config.dueling:
            return self._expectation(self._advantage(hidden, noise, rng))
        of_state, of_actions = np.split(hidden, 2, axis=1)
        advantage = self._advantage(of_actions, noise, rng)
        value = self._layers["value"](of_state, noise, rng)[:, None]
        return self._expectation(value + advantage - advantage.mean(axis=1, keepdims=True))

    def _advantage(self, hidden: _Floats, noise: float, rng: np.random.Generator) -> _Floats:
        return self._layers["advantage"](hidden, noise, rng).reshape(len(hidden), self._actions, -1)

    def _expectation(self, outputs: _Floats) -> _Floats:
        """As ReturnDistribution.expectation: [n, actions, atoms] -> [n, actions]."""
        if self._config.distribution == "quantile":
            mean: _Floats = outputs.mean(axis=2)
            return mean
        return expected_returns(outputs, self._returns)


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> _Floats:
    drawn = rng.standard_normal(shape, np.float32)
    return np.copysign(np.sqrt(np.abs(drawn)), drawn)


class RainbowEntry(BuiltInEntry[RainbowConfig]):
    """See AlgorithmEntry."""

    settings = RainbowConfig
    acts = RainbowPolicy
    learner = "remuda.policy.algorithms.rainbow.learning:Rainbow"
    meanings = MappingProxyType(
        {
            **MEANINGS,
            NOISE_SIGMA: "with `policy.noisy`: average size of the learned noise in the weights, at first "
            "`policy.noisy_sigma`",
            NOISE: "with `policy.noisy`: 1 if collectors act with noise in the weights, else 0",
        }
    )

    def declaration(self, config: ExperimentConfig, settings: RainbowConfig) -> Declaration:
        """Declare single steps; with `learner.inference` there is no noise."""
        return declared(
            config,
            settings,
            Steps(n_step=settings.n_step, discount=settings.discount),
            monitored=(*METRICS, NOISE_SIGMA) if settings.noisy else tuple(METRICS),
            exploration=_exploration(config, settings),
        )


def _exploration(config: ExperimentConfig, settings: RainbowConfig) -> dict[str, Schedule]:
    noise: Schedule = ((0, 0.0 if config.learner.inference else 1.0),)
    by_noise = {NOISE: noise} if settings.noisy else {}
    return by_noise | ({EPSILON: epsilon_schedule(config, settings)} if settings.takes_random_actions else {})
