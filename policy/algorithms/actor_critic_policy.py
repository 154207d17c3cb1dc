"""PPO and IMPALA, the acting side: draws from the policy's distribution, in numpy alone.

A row of experience is a segment: T = policy.horizon_steps consecutive slots of time of one environment. A batch of B:

obs         [B, T + 1, …]  [:, t] is what the action of slot t saw, [:, t + 1] what was seen after it (the true last
                           observation where the slot ended an episode)
action      [B, T, …]      as drawn; a Box's may lie outside its bounds
reward      [B, T]         float32
terminated  [B, T]         bool: the episode ended in the slot, and nothing would have followed
done        [B, T]         bool: it ended in the slot, terminated or truncated
valid       [B, T]         bool: a step; False where the slot is the environment's reset after a done
log_prob    [B, T]         float32: of the action, by the policy that acted
version     [B]            int64: that policy's version
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.config.schema import ImpalaConfig, PpoConfig
from remuda.policy.base import Arrays, Declaration, Policy, StateMismatchError, misfits
from remuda.policy.distributions import Categorical, Gaussian
from remuda.policy.normalisation import CLIP, Moments
from remuda.policy.spaces import ActionSpec, ObservationSpec

DECLARATION = Declaration(
    rows="segments",
    columns={
        "obs": "observation",
        "action": "action",
        "reward": "float32",
        "terminated": "bool",
        "done": "bool",
        "valid": "bool",
        "log_prob": "float32",
        "version": "int64",
    },
    monitored=(
        "cur_lr",
        "total_loss",
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "explained_variance",
        "grad_norm",
    ),
    loss_columns={
        "LossPi": "policy_loss",
        "LossV": "value_loss",
        "Entropy": "entropy",
        "KL": "approx_kl",
        "ClipFrac": "clip_fraction",
    },
)

_Layers = list[tuple[np.ndarray, np.ndarray]]
"""Weights [inputs, outputs] and biases of a perceptron."""


class ActorCriticPolicy(Policy):
    """Acts on the state of an ActorCriticNetwork."""

    def __init__(self, config: PpoConfig | ImpalaConfig, observation: ObservationSpec, action: ActionSpec) -> None:
        self._config, self._observation, self._action = config, observation, action
        self._shapes = _shapes(config, observation.features, action)
        self._policy: _Layers = []
        self._value: _Layers = []

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        problems = misfits(self._shapes, state, what="policy")
        if problems:
            raise StateMismatchError(problems)
        self._policy, self._value = (
            [
                (state[name].T, state[name.replace("weight", "bias")])
                for name in self._shapes
                if name.startswith(part) and name.endswith("weight")
            ]
            for part in ("policy.", "value.")
        )
        if self._action.n is None:
            self._log_std: NDArray[np.float32] = state["log_std"]
        observations, returns = _moments(state, "observations"), _moments(state, "returns")
        self._mean, self._scale = observations.mean.astype(np.float32), observations.scale.astype(np.float32)
        self._return_std = np.float32(1.0 / returns.scale[0]) if self._config.normalize_rewards else np.float32(1.0)

    def outputs(self, observations: np.ndarray) -> NDArray[np.float32]:
        """What the policy says of observations [n, …]: logits, or means, float32 [n, outputs]."""
        return self._through(self._policy, observations)

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
    ) -> np.ndarray:
        """Choose actions [n, …] as the environment takes them: the likeliest, or drawn."""
        distribution = self._distribution(observations)
        return self._action.to_environment(distribution.mode() if deterministic else distribution.sample(rng))

    def act_recording(
        self, observations: np.ndarray, exploration: Mapping[str, float], rng: np.random.Generator
    ) -> tuple[np.ndarray, Arrays]:
        """Draw actions. Recorded are `log_prob` float32 [n] and, of a Box, the `action` as drawn, before clipping."""
        distribution = self._distribution(observations)
        if isinstance(distribution, Categorical):
            indices = distribution.sample(rng)
            return self._action.to_environment(indices), {"log_prob": distribution.log_prob(indices)}
        drawn = distribution.sample(rng)
        recorded = {
            "log_prob": distribution.log_prob(drawn),
            "action": drawn.reshape(len(drawn), *self._action.shape),
        }
        return self._action.to_environment(drawn), recorded

    def value(self, observations: np.ndarray) -> np.ndarray:
        """Estimate the return (in the environment's own rewards) from observations [n, …] on: float32 [n]."""
        values: NDArray[np.float32] = self._through(self._value, observations)[:, 0]
        return values * self._return_std

    def _distribution(self, observations: np.ndarray) -> Categorical | Gaussian:
        outputs = self.outputs(observations)
        return Gaussian(outputs, self._log_std) if self._action.n is None else Categorical(outputs)

    def _through(self, layers: _Layers, observations: np.ndarray) -> NDArray[np.float32]:
        if not layers:
            raise RuntimeError("the policy has no weights yet: call load_state first")
        hidden = self._observation.encode(observations)
        if self._config.normalize_observations:
            hidden = ((hidden - self._mean) * self._scale).clip(-CLIP, CLIP)
        for weight, bias in layers[:-1]:
            hidden = hidden @ weight
            hidden += bias
            np.tanh(hidden, out=hidden) if self._config.activation == "tanh" else np.maximum(hidden, 0.0, out=hidden)
        weight, bias = layers[-1]
        outputs: NDArray[np.float32] = hidden @ weight + bias
        return outputs


def _moments(state: Arrays, name: str) -> Moments:
    return Moments(state[f"{name}.mean"], state[f"{name}.variance"], float(state[f"{name}.count"][0]))


def _shapes(config: PpoConfig | ImpalaConfig, features: int, action: ActionSpec) -> dict[str, tuple[int, ...]]:
    """The tensors of ActorCriticNetwork by name (a test compares the two)."""
    shapes: dict[str, tuple[int, ...]] = {} if action.n is not None else {"log_std": (action.outputs,)}
    for part, outputs in (("policy", action.outputs), ("value", 1)):
        widths = (features, *config.hidden, outputs)
        for index, (before, after) in enumerate(itertools.pairwise(widths)):
            shapes |= {f"{part}.{2 * index}.weight": (after, before), f"{part}.{2 * index}.bias": (after,)}
    for part, size in (("observations", features), ("returns", 1)):
        shapes |= {f"{part}.mean": (size,), f"{part}.variance": (size,), f"{part}.count": (1,)}
    return shapes
