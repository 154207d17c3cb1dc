"""PPO and IMPALA without torch: layout of the network, acting side, and entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.declaration import Declaration, Segments
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.policy.acting.distributions import (
    Categorical,
    CorrelatedNoise,
    Gaussian,
    MultiCategorical,
    categorical,
    masked,
)
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.acting.recurrent import RecurrentPolicy
from remuda.policy.base import Arrays, Policy
from remuda.policy.entry import BuiltInEntry
from remuda.policy.networks.layouts import RecurrentLayout, has_images, input_layout, require_readable, units
from remuda.policy.networks.normalisation import Moments
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, Numbers, ObservationSpec


@dataclass(frozen=True)
class NetworkShape:
    """Settings of an ActorCriticNetwork that depend on the observations."""

    numbers: int | None
    """Numbers per observation; None for images and observations with several parts."""
    hidden: tuple[int, ...]
    shared: bool
    """True if policy and value share the hidden layers."""
    activation: Literal["tanh", "relu"]


def network_shape(config: PpoConfig | ImpalaConfig, observation: ObservationSpec) -> NetworkShape:
    """Fill in the settings that depend on the observations. Raises UnsupportedSpaceError."""
    is_vector = not observation.is_image and not observation.parts
    image = None if config.reads_by_module else input_layout(observation, config.convolution)
    convolves = has_images(image)
    if not is_vector and config.normalize_observations:
        raise UnsupportedSpaceError(
            f"policy.normalize_observations is for numbers, and observations {_are(observation)}: leave it out"
        )
    activation = config.activation or ("relu" if convolves else "tanh")
    shared = convolves if config.shared_hidden is None else config.shared_hidden
    hidden = units(config.hidden, image, default=(64, 64))
    return NetworkShape(observation.features if is_vector else None, hidden, shared, activation)


def _are(observation: ObservationSpec) -> str:
    if observation.parts:
        return f"have several parts ({', '.join(part.name for part in observation.parts)})"
    return f"are images of shape {observation.shape}, which are scaled by their bound"


def recurrent_layout(config: PpoConfig | ImpalaConfig, observation: ObservationSpec) -> RecurrentLayout:
    """Layout of a recurrent network, for configs with `recurrent`. Raises UnsupportedSpaceError."""
    shape = network_shape(config, observation)
    assert config.recurrent is not None
    return RecurrentLayout(
        shape.numbers or 0,
        shape.hidden,
        shape.activation,
        config.recurrent,
        config.recurrent_units,
        config.normalize_observations,
    )


METRICS: Mapping[str, str] = MappingProxyType(
    {
        "cur_lr": "step size of the optimizer",
        "total_loss": "loss of a gradient update",
        "policy_loss": "part of the loss for the policy",
        "value_loss": "part of the loss for the values",
        "entropy": "entropy of the policy, in nats",
        "approx_kl": "estimated KL divergence of the policy from the acting policy",
        "clip_fraction": "share of actions whose probability ratio is beyond the clip",
        "explained_variance": "share of the variance of the targets that the values predict",
        "value": "values of the steps of a batch before its updates, on the scale of the environment's own rewards",
        "grad_norm": "norm of the gradient before clipping",
    }
)
"""Meanings of the metrics of an update, in the order of the logs."""
PPO_METRICS: Mapping[str, str] = MappingProxyType(
    {**METRICS, "stop_iter": "gradient updates on a batch: all, or until `policy.target_kl` stopped them"}
)


def make_actor_critic_policy(
    config: PpoConfig | ImpalaConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> Policy:
    """Raises UnsupportedSpaceError."""
    if config.recurrent is None:
        return ActorCriticPolicy(config, observation, action, inference)
    layout = recurrent_layout(config, observation)
    plain: dict[str, object] = {
        "hidden": (),
        "shared_hidden": None,
        "convolution": None,
        "encoder": None,
        "encoder_kwargs": {},
        "normalize_observations": False,
        "recurrent": None,
    }
    head = ActorCriticPolicy(config.model_copy(update=plain), layout.remembered, action)
    network = inference.network("actor_critic", config, observation, action, timed="encoded")
    return RecurrentPolicy(layout, observation, head, network)


class ActorCriticPolicy(Policy):
    """Acts on the state of an ActorCriticNetwork."""

    def __init__(
        self,
        config: PpoConfig | ImpalaConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        inference: Inference = PLAIN,
    ) -> None:
        """Raises UnsupportedSpaceError."""
        self._config, self._observation, self._action = config, observation, action
        self.uses_legal_actions = not action.is_box
        self.keeps_float64 = config.normalize_observations
        self._numbers: Numbers = observation.numbers(normalised=config.normalize_observations)
        network_shape(config, observation)
        require_readable(config, observation)
        self._network = inference.network("actor_critic", config, observation, action, timed="policy")
        self._noise = CorrelatedNoise(config.noise_correlation)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError and keeps the old weights."""
        returns = Moments.stored(state, "returns")
        try:
            log_std = state["log_std"] if self._action.is_box else None
        except KeyError as error:
            raise StateMismatchError([f"policy: missing {error.args[0]}"]) from error
        self._network.load_state(state)
        if log_std is not None:
            self._log_std: NDArray[np.float32] = log_std
        self._return_std = np.float32(1.0 / (returns.scale[0] if self._config.normalize_rewards else 1.0))

    def outputs(self, observations: np.ndarray) -> NDArray[np.float32]:
        """The policy's outputs for observations [n, …]: logits, or means, float32 [n, outputs]."""
        return self._network("policy", self._encoded(observations))

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
        """Choose actions [n, …] for the environment, counted actions among the legal: the likeliest, or drawn."""
        distribution = self._distribution(observations, legal)
        return self._action.to_environment(distribution.mode() if deterministic else distribution.sample(rng))

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
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

        With `noise_correlation` rows must be the same environments at every call.
        """
        distribution = self._distribution(observations, legal)
        if not isinstance(distribution, Gaussian):
            indices = distribution.sample(rng)
            return self._action.to_environment(indices), {"log_prob": distribution.log_prob(indices)}
        drawn = distribution.drawn_by(self._noise.draw((len(observations), self._action.outputs), rng))
        recorded = {"log_prob": distribution.log_prob(drawn), "action": drawn.reshape(len(drawn), *self._action.shape)}
        return self._action.to_environment(drawn), recorded

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Estimate the return (in the environment's own rewards) from observations [n, …] on: float32 [n]."""
        return self._network("value", self._encoded(observations))[:, 0] * self._return_std

    def _distribution(
        self, observations: np.ndarray, legal: np.ndarray | None
    ) -> Categorical | MultiCategorical | Gaussian:
        outputs = self.outputs(observations)
        if self._action.is_box:
            return Gaussian(outputs, self._log_std)
        return categorical(masked(outputs, legal), self._action.counts)

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        return self._observation.encode(observations, self._numbers)


ActorCriticSettings = TypeVar("ActorCriticSettings", PpoConfig, ImpalaConfig)


class ActorCriticEntry(BuiltInEntry[ActorCriticSettings]):
    """The common part of both algorithms."""

    acts = staticmethod(make_actor_critic_policy)
    meanings = METRICS
    further_columns: Mapping[str, str] = MappingProxyType({})
    """Further columns of progress.txt."""

    def declaration(self, config: ExperimentConfig, settings: ActorCriticSettings) -> Declaration:
        """Declare segments without further exploration: the policy draws its actions."""
        return Declaration(
            rows=Segments(horizon_steps=settings.horizon_steps, discount=settings.discount),
            reuse="once",
            monitored=tuple(self.meanings),
            loss_columns={
                "AverageVVals": "value",
                "StdVVals": "value_std",
                "MaxVVals": "value_max",
                "MinVVals": "value_min",
                "LossPi": "policy_loss",
                "LossV": "value_loss",
                "Entropy": "entropy",
                "KL": "approx_kl",
                "ClipFrac": "clip_fraction",
                **self.further_columns,
            },
            with_statistics=("total_loss", "policy_loss", "value_loss", "entropy", "value", "grad_norm"),
            learns_from_parts=not settings.needs_whole_batches,
            lowers_products=settings.lowers_products,
        )


class PpoEntry(ActorCriticEntry[PpoConfig]):
    """See AlgorithmEntry."""

    settings = PpoConfig
    learner = "remuda.policy.algorithms.actor_critic.ppo:Ppo"
    meanings = PPO_METRICS
    further_columns = MappingProxyType({"StopIter": "stop_iter"})


class ImpalaEntry(ActorCriticEntry[ImpalaConfig]):
    """See AlgorithmEntry."""

    settings = ImpalaConfig
    learner = "remuda.policy.algorithms.actor_critic.impala:Impala"
