"""The settings of algorithms with a policy and a value: PPO, IMPALA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import JsonValue, model_validator

from remuda.config.algorithms.base import EXAMPLES, Actions, NetworkConfig, Spaces, into_schedules
from remuda.config.section import (
    Correlation,
    Discount,
    Fraction,
    Hidden,
    Horizon,
    LogStd,
    MayChange,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Units,
)


class ActorCriticConfig(NetworkConfig):
    """Settings of all algorithms with a policy and a value network."""

    acts_in: ClassVar[tuple[Actions, ...]] = ("Discrete", "MultiDiscrete", "Box")
    replaced: ClassVar[tuple[str, ...]] = (*NetworkConfig.replaced, "shared_hidden", "activation")
    hidden: Hidden | None = None
    """Units of the hidden layers; null is [64, 64], and [512] for images."""
    shared_hidden: bool | None = None
    """Share the hidden layers between policy and value. Sharing halves the cost of an update; with separate layers the
    two losses do not disturb each other. Null shares the layers for images only."""
    activation: Literal["tanh", "relu"] | None = None
    """Activation after the hidden layers; null is tanh, and relu for images. Convolutions always use relu."""
    log_std_start: LogStd = 0.0
    """Box actions only: initial logarithm of the standard deviation of actions in collectors; the learned value is the
    same in all states. Actions are clipped to their bounds: with bounds of ±1 the default 0 explores widely, and -2
    makes small changes to the output of the network."""
    noise_correlation: Correlation = 0.0
    """Box actions only: correlation of an action's noise with the noise of the previous step in the same environment.
    The distribution of a single action does not change; its distribution given earlier steps does, which PPO and IMPALA
    ignore. 0 draws independent noise; values near 1 push in one direction for about 1 / (1 - noise_correlation) steps,
    and find rewards that need many similar actions in a row (Hollenstein et al. 2024)."""
    recurrent: Literal["lstm", "gru"] | None = None
    """A recurrent core behind the hidden layers, read by policy and value, as a memory of the episode. Segments begin
    with the state of the collector at their first step, and gradients reach back to the beginning of the segment. The
    shares of `minibatches` are then whole segments. Null has no memory, and is much faster."""
    recurrent_units: Units = 64
    """Units of the recurrent core."""
    discount: Discount = 0.99
    """Discount per environment step."""

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        return {} if self.recurrent else {"policy.recurrent is null": ("policy.recurrent_units",)}

    @property
    def lowers_products(self) -> bool:
        return self.recurrent is None and super().lowers_products

    @model_validator(mode="after")
    def _core_reads_shared_layers(self) -> ActorCriticConfig:
        if self.recurrent is not None and (self.shared_hidden is False or self.hidden == ()):
            raise ValueError(
                "with `recurrent`, policy and value share at least one hidden layer, which the core reads: leave "
                "shared_hidden out, and hidden if it is empty"
            )
        return self


class PpoConfig(ActorCriticConfig):
    """Proximal policy optimisation (Schulman et al. 2017), on-policy: segments of experience are used once."""

    recommended_for = ("images", "Discrete actions", "Box actions without bounds")
    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {"learner.learning_rate": 3e-4, "learner.optimizer_settings": {"eps": 1e-5}, "learner.max_grad_norm": 0.5}
    )
    """Schulman et al. 2017, table 3 (MuJoCo); norm and Adam's epsilon as in the authors' code (OpenAI baselines)."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType(
        {
            "ALE/Pong-v5": EXAMPLES / "pong_ppo.yaml",
            "Acrobot-v1": EXAMPLES / "acrobot_ppo.yaml",
            "CartPole-v1": EXAMPLES / "cartpole_ppo.yaml",
            "HalfCheetah-v5": EXAMPLES / "half_cheetah_ppo.yaml",
            "Hopper-v5": EXAMPLES / "hopper_ppo.yaml",
            "LunarLander-v3": EXAMPLES / "lunar_lander_ppo.yaml",
            "LunarLanderContinuous-v3": EXAMPLES / "lunar_lander_continuous_ppo.yaml",
            "MountainCarContinuous-v0": EXAMPLES / "mountain_car_continuous_ppo.yaml",
            "Pendulum-v1": EXAMPLES / "pendulum_ppo.yaml",
            "Walker2d-v5": EXAMPLES / "walker2d_ppo.yaml",
        }
    )

    type: Literal["ppo"] = "ppo"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    gae_lambda: Annotated[Fraction, MayChange()] = 0.95
    """lambda of generalised advantage estimation (Schulman et al. 2016): 0 looks one step ahead, 1 to the end of the
    segment."""
    horizon_steps: Horizon = 64
    """Steps of one environment per segment. A batch is learner.segments_per_update segments."""
    epochs: Annotated[Positive, MayChange()] = 10
    """Passes over a batch."""
    minibatches: Annotated[Positive, MayChange()] = 8
    """Gradient steps per pass, on equal parts of the batch."""
    clip: Annotated[PositiveFloat, MayChange(NonNegativeFloat)] = 0.2
    """The ratio of new to old action probability is clipped to 1 - clip … 1 + clip."""
    value_clip: Annotated[PositiveFloat | None, MayChange()] = None
    """Largest change of a value from its estimate before the update; null does not clip values."""
    entropy_coefficient: Annotated[NonNegativeFloat, MayChange()] = 0.0
    """Weight of the entropy bonus in the loss."""
    value_coefficient: Annotated[NonNegativeFloat, MayChange()] = 0.5
    """Weight of the squared value error in the loss."""
    normalize_advantages: bool = True
    """Normalise the advantages of a batch to mean 0 and standard deviation 1."""
    recompute_advantages: bool = False
    """Recompute advantages and returns with the newest values before every pass except the first (Andrychowicz et al.
    2021). A recomputation costs one evaluation of the value network."""
    normalize_observations: bool = False
    """Normalise observations to running mean 0 and standard deviation 1, clipped at 10. Observations of float64 stay
    exact until the mean is subtracted, however large the mean is, and take twice the space in chunks and in memory."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return, clipped at 10."""
    target_kl: Annotated[PositiveFloat | None, MayChange()] = None
    """The remaining gradient steps of a batch are skipped once the KL divergence from the old policy exceeds 1.5 times
    this value; null never skips any."""

    @classmethod
    def with_current_names(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        return into_schedules(values, "anneal_env_steps", {"learner.learning_rate": 3e-4, "policy.clip": 0.2})

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        """See AlgorithmConfig. For images as in examples/pong_ppo.yaml. Observations of several parts cannot be
        normalised."""
        if spaces == "images":
            return {
                "policy.horizon_steps": 128,
                "policy.epochs": 4,
                "policy.minibatches": 4,
                "policy.entropy_coefficient": 0.01,
                "learner.learning_rate": [[0, 2.5e-4], [10_000_000, 0]],
                "policy.clip": [[0, 0.1], [10_000_000, 0]],
                "collector.count": 1,
                "stop.max_env_steps": 10_000_000,
            }
        normalised = {"policy.normalize_observations": not in_parts, "policy.normalize_rewards": True}
        if spaces == "Box actions":
            return {"policy.horizon_steps": 256, "policy.minibatches": 32, **normalised}
        return {"policy.horizon_steps": 128, "learner.learning_rate": 5e-4, **normalised}

    @property
    def needs_whole_batches(self) -> str:
        return "policy.recurrent is set" if self.recurrent else ""  # minibatches are whole segments

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment."""
        return self.horizon_steps


class ImpalaConfig(ActorCriticConfig):
    """Actor-critic with V-trace (Espeholt et al. 2018): learns from segments of slightly older policies."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            "learner.learning_rate": 5e-4,
            "learner.optimizer_settings": {"eps": 1e-5},
            "learner.max_grad_norm": 0.5,
            "buffer.max_policy_lag": 4,
        }
    )
    """Values for Adam and means of losses; the paper's 6e-4 and 40 are for RMSProp and sums of losses. V-trace
    corrects for older policies, so collectors need not wait for every update."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType(
        {"ALE/Pong-v5": EXAMPLES / "pong_impala.yaml", "CartPole-v1": EXAMPLES / "cartpole_impala.yaml"}
    )

    type: Literal["impala"] = "impala"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    horizon_steps: Horizon = 20
    """Steps of one environment per segment. A batch is learner.segments_per_update segments."""
    epochs: Annotated[Positive, MayChange()] = 1
    """Gradient steps on each batch; several need `clip`."""
    clip: Annotated[PositiveFloat | None, MayChange()] = None
    """Null is the paper's loss. Otherwise actions whose probability has grown or fallen by more than this share, in the
    direction of their advantage, are left out of the policy's loss, as in PPO (Petrenko et al. 2020)."""
    normalize_advantages: bool = False
    """Normalise the advantages of a batch to mean 0 and standard deviation 1."""
    rho_clip: Annotated[PositiveFloat, MayChange()] = 1.0
    """Largest importance weight of a step (rho in V-trace). A larger value brings the learned values closer to the
    values of the newest policy."""
    c_clip: Annotated[PositiveFloat, MayChange()] = 1.0
    """Largest importance weight along the trace (c in V-trace). A larger value passes rewards back faster, with more
    variance."""
    entropy_coefficient: Annotated[NonNegativeFloat, MayChange()] = 0.01
    """Weight of the entropy bonus in the loss."""
    value_coefficient: Annotated[NonNegativeFloat, MayChange()] = 0.5
    """Weight of the squared value error in the loss."""
    normalize_observations: bool = False
    """Normalise observations to running mean 0 and standard deviation 1, clipped at 10. Observations of float64 stay
    exact until the mean is subtracted, however large the mean is, and take twice the space in chunks and in memory."""
    normalize_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted return, clipped at 10."""

    @classmethod
    def with_current_names(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        return into_schedules(values, "anneal_env_steps", {"learner.learning_rate": 5e-4})

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        """See AlgorithmConfig. For images as in examples/pong_impala.yaml, with half the learning rate for the larger
        network."""
        if spaces != "images":
            return {}
        return {
            "env.num_envs": 16,
            "policy.horizon_steps": 32,
            "policy.epochs": 3,
            "policy.clip": 0.1,
            "policy.c_clip": 0.95,
            "policy.normalize_advantages": True,
            "policy.normalize_rewards": False,
            "policy.value_coefficient": 0.25,
            "learner.learning_rate": [[0, 5e-4], [10_000_000, 0]],
            "learner.segments_per_update": 8,
            "collector.count": 1,
            "stop.max_env_steps": 10_000_000,
        }

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment."""
        return self.horizon_steps
