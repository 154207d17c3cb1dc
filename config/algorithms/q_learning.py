"""Settings of algorithms that learn action values: DQN, Rainbow, R2D2, PQN."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)

from remuda.config.algorithms.base import EXAMPLES, Actions, EncodedConfig, NetworkConfig, Spaces, into_optimizer
from remuda.config.section import (
    AnyFloat,
    Discount,
    Fraction,
    Hidden,
    Horizon,
    MayChange,
    NonNegativeFloat,
    NSteps,
    Positive,
    PositiveFloat,
    Units,
    at_least_one_layer,
    no_bool,
)

FOR_IMAGES: Mapping[str, JsonValue] = MappingProxyType(
    {
        "policy.target_update_iters": 2_000,
        "learner.batch_size": 32,
        "learner.learning_rate": 1e-4,
        "learner.publish_interval_iters": 100,
        "buffer.min_rows": 20_000,
        "stop.max_env_steps": 10_000_000,
    }
)
"""Settings of Q-learning for Atari."""


class ActionValueConfig(EncodedConfig):
    """Settings of all algorithms with action values."""

    acts_in: ClassVar[tuple[Actions, ...]] = ("Discrete",)
    hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] | None = None
    """Units of the hidden layers, at least one layer. With `dueling`, value and advantages have separate last hidden
    layers. Null is [128, 128, 64], for rainbow and pqn [128, 128], and [512] for images."""
    discount: Discount = 0.99
    """Discount per environment step."""
    epsilon_start: Fraction = 1.0
    """Share of random actions at env_step 0."""
    epsilon_end: Fraction = 0.05
    """Share of random actions after the decay."""
    epsilon_decay_env_steps: Positive | None = None
    """Environment steps over which epsilon falls linearly from start to end; null is a fifth of stop.max_env_steps, at
    most a million."""
    epsilon_spread: NonNegativeFloat = 0.0
    """Spread of exploration over the environments of all collectors (Ape-X, Horgan et al. 2018): environment i of N
    takes epsilon ** (1 + epsilon_spread * i / (N - 1)). 0 is the same epsilon for all. Ape-X has 7, with
    `epsilon_start` and `epsilon_end` 0.4."""


class QLearningConfig(ActionValueConfig):
    """Settings of algorithms with replay and a target network."""

    double: bool = True
    """Choose the next action by the online network, and value the action by the target network (van Hasselt et al.
    2016)."""
    n_step: NSteps = 3
    """Steps of reward summed before bootstrapping."""
    target_update_iters: Annotated[Positive, MayChange()] = 250
    """Gradient updates between hard copies of the online network into the target network."""


class DuelingConfig(QLearningConfig):
    """Settings of algorithms whose network may have two streams."""

    dueling: bool = True
    """Separate value and advantage streams (Wang et al. 2016)."""


class MunchausenConfig(DuelingConfig):
    """Settings of algorithms that may learn soft values (Vieillard et al. 2020)."""

    munchausen_share: Fraction | None = None
    """Learn soft values, and add this share of munchausen_temperature * log probability of the taken action, at least
    -1, to each reward (Munchausen DQN, Vieillard et al. 2020, with 0.9). Policies then change less between updates.
    Null learns the values of the best actions; `double` has an effect with null only."""
    munchausen_temperature: PositiveFloat = 0.03
    """Temperature of the policy softmax(values / temperature) of `munchausen_share`, in units of the reward."""

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        if self.munchausen_share is None:
            return {"policy.munchausen_share is null": ("policy.munchausen_temperature",)}
        return {"policy.munchausen_share is set": ("policy.double",)}


class DqnConfig(NetworkConfig, MunchausenConfig):
    """Deep Q-learning (Mnih et al. 2015) with double, dueling, n-step and prioritized variants.

    The schema's defaults are for DQN: a row is drawn 8 times, as in the paper (32 rows for 4 steps); the gradient norm
    follows Wang et al. 2016, the exponents of priorities Schaul et al. 2016. Learning rate, batch and first update are
    for small environments, as in examples/cartpole_dqn.yaml. The paper's values are for 50 million steps of Atari: see
    examples/pong_dqn.yaml.
    """

    model_config = ConfigDict(json_schema_extra={})  # a config without `type` means this one
    replaced: ClassVar[tuple[str, ...]] = (*NetworkConfig.replaced, "dueling")
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType(
        {"CartPole-v1": EXAMPLES / "cartpole_dqn.yaml", "ALE/Pong-v5": EXAMPLES / "pong_dqn.yaml"}
    )

    formerly: ClassVar[Mapping[str, JsonValue]] = MappingProxyType({"normalize_rewards": False})

    type: Literal["dqn"] = "dqn"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    normalize_rewards: bool = True
    """Divide rewards by the root mean square of all replayed rewards so far, clipped at 10, so that the learning rate
    fits rewards of any size. Atari's rewards are clipped instead, and not divided by default."""

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        if spaces != "images":
            return {}
        return {**FOR_IMAGES, "policy.normalize_rewards": False, "policy.epsilon_end": 0.01}


class RainbowConfig(NetworkConfig, MunchausenConfig):
    """Rainbow (Hessel et al. 2018): Q-learning of whole distributions of returns, with noisy networks. Actions must be
    Discrete."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            "learner.batch_size": 32,
            "learner.learning_rate": 6.25e-5,
            "learner.optimizer_settings": {"eps": 1.5e-4},
            "buffer.capacity": 1_000_000,
            "buffer.min_rows": 20_000,
            "buffer.priority_exponent": 0.5,
        }
    )
    """Hessel et al. 2018, table 1, where four frames are a step. A row is drawn 8 times (32 rows for 4 steps), as in
    the schema."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType({"CartPole-v1": EXAMPLES / "cartpole_rainbow.yaml"})
    replaced: ClassVar[tuple[str, ...]] = (*NetworkConfig.replaced, "dueling")

    type: Literal["rainbow"] = "rainbow"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    distribution: Literal["categorical", "quantile"] = "categorical"
    """`categorical`: probabilities of fixed returns from `v_min` to `v_max` (C51, Bellemare et al. 2017). `quantile`:
    returns of fixed probability (Dabney et al. 2018), without bounds."""
    atoms: Annotated[int, Field(gt=1, le=1000), BeforeValidator(no_bool)] = 51
    """Fixed returns, or quantiles, per action. More atoms describe a distribution more finely, and an update takes
    longer."""
    v_min: AnyFloat = -10.0
    """Categorical only: the least return that the network distinguishes. Choose `v_min` and `v_max` by the discounted
    returns of the environment; returns beyond the bounds count as the bounds."""
    v_max: AnyFloat = 10.0
    """Categorical only: the largest return. The atoms divide the range evenly, so a much too wide range distinguishes
    near returns less well."""
    noisy: bool = True
    """Explore by learned noise in the weights of the last two layers (Fortunato et al. 2018) instead of by random
    actions: `epsilon_…` is then not used, unless `noisy_epsilon` is true."""
    noisy_epsilon: bool = False
    """With `noisy`, take random actions as well: a share epsilon of the actions, as without noise. Noise leads to
    states near the states of the newest policy. If these states teach too little at first, as on CartPole, let epsilon
    fall from 1 to 0."""
    noisy_sigma: PositiveFloat = 0.5
    """Initial size of the noise, relative to the size of the weights."""
    target_update_iters: Annotated[Positive, MayChange()] = 2_000
    """Gradient updates between hard copies of the online network into the target network."""

    @classmethod
    def with_current_names(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        return into_optimizer(values, "adam_epsilon", "eps")

    @property
    def takes_random_actions(self) -> bool:
        """True if collectors take a share epsilon of random actions."""
        return not self.noisy or self.noisy_epsilon

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        found = {**super().unused_settings()}
        if self.distribution == "quantile":
            found["policy.distribution is quantile, which needs no bounds"] = ("policy.v_min", "policy.v_max")
        if not self.noisy:
            found["policy.noisy is false"] = ("policy.noisy_epsilon", "policy.noisy_sigma")
        if not self.takes_random_actions:
            why = "policy.noisy explores instead, unless policy.noisy_epsilon is true"
            found[why] = tuple(f"policy.epsilon_{of}" for of in ("start", "end", "decay_env_steps", "spread"))
        return found

    @model_validator(mode="after")
    def _bounds_in_order(self) -> RainbowConfig:
        if self.distribution == "categorical" and self.v_min >= self.v_max:
            raise ValueError(f"v_min ({self.v_min:g}) should be less than v_max ({self.v_max:g})")
        return self

    @model_validator(mode="after")
    def _has_layers_with_noise(self) -> RainbowConfig:
        if self.noisy and self.network is not None:
            raise ValueError(
                "noisy is about Remuda's own last layers, in place of which network stands: set noisy to false, and "
                "epsilon_… explores"
            )
        return self


class R2d2Config(DuelingConfig):
    """R2D2 (Kapturowski et al. 2019): deep Q-learning with a recurrent network, which remembers the episode, from
    replayed sequences.

    A row of the buffer is a sequence: `buffer.capacity` and `buffer.min_rows` count sequences, `learner.batch_size` is
    the sequences of an update. Actions must be Discrete.
    """

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            "learner.learning_rate": 1e-4,
            "learner.max_grad_norm": 40.0,
            "buffer.priority_exponent": 0.9,
            "buffer.importance_exponent": 0.6,
        }
    )
    """Kapturowski et al. 2019, table 2; batches of 64 and 100,000 sequences are the schema's. A sequence is drawn 8
    times, not 0.8 times as in the paper, whose 256 actors bring more experience than a learner can use."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType({"CartPole-v1": EXAMPLES / "cartpole_r2d2.yaml"})

    type: Literal["r2d2"] = "r2d2"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    recurrent: Literal["lstm", "gru"] = "lstm"
    """The recurrent core: long short-term memory, or gated recurrent units, which take three quarters of the time."""
    recurrent_units: Units = 128
    """Units of the core. The paper has 512, for Atari."""
    hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] | None = None
    """Units of the hidden layers between the observation and the core, at least one layer. Null is [128], and [512] for
    images."""
    head_hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] = (128,)
    """Units of the hidden layers between the core and the values, at least one layer. With `dueling`, value and
    advantages have separate last hidden layers."""
    value_rescaling: bool = True
    """Learn values after sign(x)(sqrt(|x| + 1) - 1) + 0.001 x (Pohlen et al. 2018), so that large returns need no
    clipped rewards."""
    n_step: NSteps = 5
    """Steps of reward summed before bootstrapping."""
    discount: Discount = 0.997
    """Discount per environment step."""
    burn_in_steps: Annotated[int, Field(ge=0, le=10_000), BeforeValidator(no_bool)] = 40
    """Steps before the sequence that only update the recurrent state: an older network stored the state with the
    sequence. Nothing is learned from these steps."""
    sequence_steps: Horizon = 80
    """Steps of a sequence to learn from. An update takes longer in proportion to these and the burn-in together."""
    overlap_steps: Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(no_bool)] = 40
    """Steps shared by neighbouring sequences of an environment; less than `sequence_steps`. More overlap is more rows
    for the same experience."""
    priority_eta: Annotated[Fraction, MayChange()] = 0.9
    """Weight of the largest absolute error in the priority of a sequence; the mean error has the rest of the weight."""
    target_update_iters: Annotated[Positive, MayChange()] = 2_500
    """Gradient updates between hard copies of the online network into the target network."""

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        if spaces == "images":
            return {}
        return {
            "policy.recurrent": "gru",
            "policy.burn_in_steps": 10,
            "policy.sequence_steps": 40,
            "policy.overlap_steps": 20,
            "policy.n_step": 3,
            "policy.discount": 0.99,
            "policy.target_update_iters": 100,
            "learner.batch_size": 32,
            "learner.learning_rate": 1e-3,
            "buffer.capacity": 10_000,
            "buffer.min_rows": 100,
            "buffer.samples_per_insert": 32.0,
        }

    @property
    def lowers_products(self) -> bool:
        return False

    @model_validator(mode="after")
    def _sequences_move_on(self) -> R2d2Config:
        if self.overlap_steps >= self.sequence_steps:
            raise ValueError(
                f"overlap_steps ({self.overlap_steps}) must be less than sequence_steps ({self.sequence_steps}), or "
                "sequences would never move on"
            )
        return self


class PqnConfig(NetworkConfig, ActionValueConfig):
    """Parallelised Q-networks (Gallici et al. 2025): Q-learning without replay and target network, on-policy: each
    segment of experience is used once. Layer normalisation keeps the values from growing. Actions must be Discrete."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            "env.num_envs": 32,
            "learner.learning_rate": 2.5e-4,
            "learner.optimizer_settings": {"eps": 1e-5},
            "learner.segments_per_update": 32,
        }
    )
    """Gallici et al. 2025, appendix (Atari), with 32 instead of 128 environments; the norm of 10 is the schema's
    default."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType({"CartPole-v1": EXAMPLES / "cartpole_pqn.yaml"})
    replaced: ClassVar[tuple[str, ...]] = (*NetworkConfig.replaced, "layer_norm")

    formerly: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {"normalize_rewards": False, "recurrent": None, "recurrent_units": 128}
    )

    type: Literal["pqn"] = "pqn"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    normalize_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted return, clipped at 10, so that the learning
    rate fits rewards of any size. Atari's rewards are clipped instead, and not divided by default."""
    layer_norm: bool = True
    """Normalise the hidden layers before their activation (Ba et al. 2016). Without a target network, values may grow
    without bound if the layers are not normalised."""
    recurrent: Literal["lstm", "gru"] | None = None
    """A recurrent core before the last hidden layer, as a memory of the episode. Segments begin with the state of the
    collector at their first step. The shares of `minibatches` are then whole segments. Null has no memory."""
    recurrent_units: Units = 128
    """Units of the recurrent core."""
    horizon_steps: Horizon = 32
    """Steps of one environment per segment."""
    q_lambda: Annotated[Fraction, MayChange()] = 0.65
    """Targets of values, from 0, which trusts the value of the next observation, to 1, which trusts the rewards of the
    whole segment."""
    epochs: Annotated[Positive, MayChange()] = 2
    """Passes over a batch."""
    minibatches: Annotated[Positive, MayChange()] = 8
    """Shares of a batch, with one gradient step per share."""

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        if spaces != "images":
            return {}
        return {
            "policy.normalize_rewards": False,
            "policy.epsilon_end": 0.001,
            "collector.count": 1,
            "stop.max_env_steps": 10_000_000,
        }

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        return {} if self.recurrent else {"policy.recurrent is null": ("policy.recurrent_units",)}

    @property
    def lowers_products(self) -> bool:
        return self.recurrent is None and super().lowers_products

    @property
    def needs_whole_batches(self) -> str:
        return "policy.recurrent is set" if self.recurrent else ""  # minibatches are whole segments

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment."""
        return self.horizon_steps
