"""PPO and IMPALA, the acting side: draws from the policy's distribution.

It records `log_prob`, float32: of each action, by the policy that acted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.environments.unsupported import UnsupportedSpaceError
from remuda.policy.acting.correlated_noise import CorrelatedNoise
from remuda.policy.acting.distributions import Categorical, Gaussian, MultiCategorical, categorical, masked
from remuda.policy.acting.inference import Inference
from remuda.policy.acting.recurrent import RecurrentPolicy
from remuda.policy.acting.weights import Dense, Weights, weights_of
from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.normalisation import CLIP, Moments
from remuda.policy.networks.parts import InputLayout, features_of, has_images, input_layout, units
from remuda.policy.networks.recurrence import RecurrentLayout
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, Numbers, ObservationSpec

MONITORED = (
    "cur_lr",
    "total_loss",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
    "value",
    "grad_norm",
)
"""The metrics of an update."""
PPO_MONITORED = (*MONITORED, "stop_iter")
"""Also in PPO: `stop_iter` counts the gradient updates on a batch, which `target_kl` may have stopped."""


@dataclass(frozen=True)
class NetworkShape:
    """How an ActorCriticNetwork reads observations."""

    image: InputLayout | None
    hidden: tuple[int, ...]
    shared: bool
    """Whether policy and value share the hidden layers."""
    activation: Literal["tanh", "relu"]


def network_shape(config: PpoConfig | ImpalaConfig, observation: ObservationSpec) -> NetworkShape:
    """Complete the settings that depend on the observations. Raises UnsupportedSpaceError."""
    image = input_layout(observation, config.convolution)
    if image is not None and config.normalize_observations:
        raise UnsupportedSpaceError(
            f"policy.normalize_observations is for numbers, and observations {_are(observation)}: leave it out"
        )
    activation = config.activation or ("relu" if has_images(image) else "tanh")
    shared = has_images(image) if config.shared_hidden is None else config.shared_hidden
    return NetworkShape(image, units(config.hidden, image, default=(64, 64)), shared, activation)


def _are(observation: ObservationSpec) -> str:
    if observation.parts:
        return f"have several parts ({', '.join(part.name for part in observation.parts)})"
    return f"are images of shape {observation.shape}, which are scaled by their bound"


def recurrent_layout(config: PpoConfig | ImpalaConfig, observation: ObservationSpec) -> RecurrentLayout:
    """How a recurrent network reads observations, if `config.recurrent` asks for one. Raises UnsupportedSpaceError."""
    shape = network_shape(config, observation)
    assert config.recurrent is not None
    return RecurrentLayout(
        shape.image,
        features_of(observation, shape.image),
        shape.hidden,
        shape.activation,
        config.recurrent,
        config.recurrent_units,
        config.normalize_observations,
    )


def make_actor_critic_policy(
    config: PpoConfig | ImpalaConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    *,
    chosen: Callable[[str], None] | None = None,
    device: str = "cpu",
) -> Policy:
    """`chosen` and `device` are Inference's. Raises UnsupportedSpaceError."""
    if config.recurrent is None:
        return ActorCriticPolicy(config, observation, action, chosen=chosen, device=device)
    layout = recurrent_layout(config, observation)
    plain: dict[str, object] = {
        "hidden": (),
        "shared_hidden": None,
        "convolution": None,
        "normalize_observations": False,
    }
    head = ActorCriticPolicy(config.model_copy(update=plain), layout.remembered, action)
    return RecurrentPolicy(layout, observation, head, chosen=chosen, device=device)


class ActorCriticPolicy(Policy):
    """Acts on the state of an ActorCriticNetwork."""

    def __init__(
        self,
        config: PpoConfig | ImpalaConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        chosen: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        """`chosen` and `device` are Inference's."""
        self._config, self._observation, self._action = config, observation, action
        self.uses_legal_actions = not action.is_box
        self.keeps_float64 = config.normalize_observations
        self._numbers: Numbers = observation.numbers(normalised=config.normalize_observations)
        self._network = network_shape(config, observation)
        self._shapes = _shapes(self._network, features_of(observation, self._network.image), action)
        self._policy, self._value = Inference(chosen, device), Inference(device=device)
        self._mean, self._scale = np.zeros(1, self._numbers), np.ones(1, self._numbers)
        self._noise = CorrelatedNoise(config.noise_correlation)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        require_fit(self._shapes, state, what="policy")
        self._policy.load(self._weights(state, "policy"))
        self._value.load(self._weights(state, "value"))
        if self._action.is_box:
            self._log_std: NDArray[np.float32] = state["log_std"]
        if self._config.normalize_observations:
            observations = _moments(state, "observations")
            self._mean, self._scale = observations.mean.astype(self._numbers), observations.scale.astype(self._numbers)
        scale = _moments(state, "returns").scale[0] if self._config.normalize_rewards else 1.0
        self._return_std = np.float32(1.0 / scale)

    def outputs(self, observations: np.ndarray) -> NDArray[np.float32]:
        """The policy's outputs for observations [n, …]: logits, or means, float32 [n, outputs]."""
        return self._policy(self._encoded(observations))

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
        """Choose actions [n, …] as the environment takes them, counted ones among the legal: the likeliest, or
        drawn."""
        distribution = self._distribution(observations, legal)
        return self._action.to_environment(distribution.mode() if deterministic else distribution.sample(rng))

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """See Policy."""
        log_prob: dict[str, tuple[tuple[int, ...], str]] = {"log_prob": ((), "float32")}
        return log_prob | {"action": (self._action.shape, "float32")} if self._action.is_box else log_prob

    def act_recording(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        """Draw actions. Records `log_prob` float32 [n] and, for a Box, the `action` as drawn, before clipping.

        With `noise_correlation` rows must be the same environments at each call.
        """
        distribution = self._distribution(observations, legal)
        if not isinstance(distribution, Gaussian):
            indices = distribution.sample(rng)
            return self._action.to_environment(indices), {"log_prob": distribution.log_prob(indices)}
        drawn = distribution.drawn_by(self._noise.draw((len(observations), self._action.outputs), rng))
        recorded = {
            "log_prob": distribution.log_prob(drawn),
            "action": drawn.reshape(len(drawn), *self._action.shape),
        }
        return self._action.to_environment(drawn), recorded

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Estimate the return (in the environment's own rewards) from observations [n, …] on: float32 [n]."""
        values: NDArray[np.float32] = self._value(self._encoded(observations))[:, 0]
        return values * self._return_std

    def _distribution(
        self, observations: np.ndarray, legal: np.ndarray | None
    ) -> Categorical | MultiCategorical | Gaussian:
        outputs = self.outputs(observations)
        if self._action.is_box:
            return Gaussian(outputs, self._log_std)
        return categorical(masked(outputs, legal), self._action.counts)

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        encoded = self._observation.encode(observations, self._numbers)
        if self._config.normalize_observations:
            encoded = ((encoded - self._mean) * self._scale).clip(-CLIP, CLIP).astype(np.float32, copy=False)
        return encoded

    def _weights(self, state: Arrays, part: Literal["policy", "value"]) -> Weights:
        """The weights of one of the two networks, shared layers first."""
        image, activation = self._network.image, self._network.activation
        names = [
            name.removesuffix(".weight")
            for name in self._shapes
            if name.startswith((f"{part}.", _SHARED)) and name.endswith(".weight")
            if image is None or not name.startswith(f"{_CONVOLUTIONS}.")
        ]
        return weights_of(state, (Dense.of(state, name) for name in names), activation, image, _CONVOLUTIONS)


def _moments(state: Arrays, name: str) -> Moments:
    return Moments(state[f"{name}.mean"], state[f"{name}.variance"], float(state[f"{name}.count"][0]))


_SHARED = "trunk."
"""The names of the shared layers in an ActorCriticNetwork."""
_CONVOLUTIONS = "trunk.0"
"""Among them, for images, the names of the convolutions."""


def _shapes(network: NetworkShape, features: int, action: ActionSpec) -> dict[str, tuple[int, ...]]:
    """The tensors of ActorCriticNetwork by name (a test compares the two)."""
    shapes: dict[str, tuple[int, ...]] = {"log_std": (action.outputs,)} if action.is_box else {}
    hidden, image = network.hidden, network.image
    if image is None:
        shapes |= _moments_shapes("observations", features)
    else:
        shapes |= image.shapes(_CONVOLUTIONS)
        features = image.features
    if network.shared:
        shapes |= _dense_shapes(_SHARED, 0 if image is None else 1, (features, *hidden))
        features, hidden = (features, *hidden)[-1], ()
    shapes |= _moments_shapes("returns", 1)
    for part, outputs in (("policy.", action.outputs), ("value.", 1)):
        shapes |= _dense_shapes(part, 0, (features, *hidden, outputs))
    return shapes


def _dense_shapes(prefix: str, first: int, widths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The shapes of layers numbered from `first`, with an activation after each."""
    shapes: dict[str, tuple[int, ...]] = {}
    for index, (before, after) in enumerate(itertools.pairwise(widths)):
        name = f"{prefix}{first + 2 * index}"
        shapes |= {f"{name}.weight": (after, before), f"{name}.bias": (after,)}
    return shapes


def _moments_shapes(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.mean": (size,), f"{name}.variance": (size,), f"{name}.count": (1,)}
