"""PPO and IMPALA, the acting side: draws from the policy's distribution.

It records `log_prob`, float32: of each action, by the policy that acted.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
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
from remuda.policy.algorithms.actor_critic.layout import network_shape, recurrent_layout
from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.normalisation import Moments
from remuda.policy.networks.parts import require_readable
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, Numbers, ObservationSpec

if TYPE_CHECKING:
    from torch import nn

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


def make_actor_critic_policy(
    config: PpoConfig | ImpalaConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    inference: Inference = PLAIN,
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
    make = functools.partial(_network, config, observation, action, inference.source_dir)
    return RecurrentPolicy(layout, observation, head, make, inference)


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
        make = functools.partial(_network, config, observation, action, inference.source_dir)
        self._network = inference.network(make, observation, timed="policy")
        self._noise = CorrelatedNoise(config.noise_correlation)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        try:
            returns = Moments(state["returns.mean"], state["returns.variance"], float(state["returns.count"][0]))
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


def _network(
    config: PpoConfig | ImpalaConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> nn.Module:
    from remuda.policy.algorithms.actor_critic.networks import make_network  # not above: most collectors need no torch

    return make_network(config, observation, action, source_dir)
