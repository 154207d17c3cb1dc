"""The settings of MuZero."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
)

from remuda.config.algorithms.base import EXAMPLES, Actions, EncoderConfig, into_optimizer
from remuda.config.section import (
    Discount,
    Fraction,
    Hidden,
    MayChange,
    NonNegativeFloat,
    NSteps,
    Positive,
    PositiveFloat,
    Units,
    UnrollSteps,
    at_least_one_layer,
    no_bool,
)


class MuZeroConfig(EncoderConfig):
    """MuZero (Schrittwieser et al. 2020): a learned model of the environment, and a search in it for every action.

    With the self-supervised consistency of EfficientZero (Ye et al. 2021) and Reanalyse (Schrittwieser et al. 2021).
    Actions must be Discrete.
    """

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            "learner.batch_size": 256,
            "learner.learning_rate": 3e-3,
            "learner.optimizer_settings": {"weight_decay": 1e-4},
            "learner.prefetch_batches": 4,
            "buffer.min_rows": 2_000,
            "buffer.samples_per_insert": 64.0,
        }
    )
    """Ye et al. 2021 (EfficientZero): batches of 256, weight decay, the first update after 2,000 steps. LightZero's
    code: 3e-3 for Adam (the papers have SGD), a norm of 10 as in the schema, and one update per four steps. Rows are
    large, so few batches are fetched at once."""
    acts_in: ClassVar[tuple[Actions, ...]] = ("Discrete",)
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType(
        {"CartPole-v1": EXAMPLES / "cartpole_gumbel_muzero.yaml", "ALE/Pong-v5": EXAMPLES / "pong_muzero.yaml"}
    )

    type: Literal["muzero"] = "muzero"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    simulations: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 50
    """Simulations per search, in collectors and evaluators. A simulation is one evaluation of the model, for all
    environments of a collector at once. More simulations choose better actions, and take longer in proportion."""
    gumbel: bool = False
    """Search by the rule of Gumbel MuZero (Danihelka et al. 2022), which improves the policy with as few as 2
    simulations. Collectors then explore by Gumbel noise alone: `root_noise_…`, `temperature_…` and `pb_c_…` are not
    used."""
    gumbel_considered_actions: Positive = 16
    """Largest number of root actions in a search with `gumbel`; searches with fewer simulations try fewer actions."""
    gumbel_c_visit: NonNegativeFloat = 50.0
    """Weight of values against the network's policy, independent of the number of simulations: larger numbers let
    values decide sooner."""
    gumbel_c_scale: PositiveFloat = 1.0
    """Weight of values against the network's policy. The paper has 1.0 for board games and 0.1 for Atari."""
    pb_c_base: PositiveFloat = 19_652.0
    """c2 of the search formula: number of visits after which the prior weighs notably more than at the start."""
    pb_c_init: NonNegativeFloat = 1.25
    """c1 of the search formula: weight of the prior against the values found by the search."""
    value_delta_min: PositiveFloat = 0.01
    """Smallest difference between values that a search enlarges. A search scales values to 0 … 1 between the least and
    the largest value seen."""
    root_noise_alpha: PositiveFloat = 0.3
    """Parameter of the Dirichlet noise on the prior of the root, in collectors. Small values favour single actions."""
    root_noise_fraction: Fraction = 0.25
    """Share of the noise in the prior of the root; 0 explores by the temperature alone."""
    temperature_start: NonNegativeFloat = 0.25
    """Temperature at env_step 0: collectors draw actions in proportion to visits ** (1 / temperature). At 0 collectors
    take the most visited action."""
    temperature_end: NonNegativeFloat = 0.25
    """The same after the decay; evaluations always take the most visited action."""
    temperature_decay_env_steps: Positive | None = None
    """Environment steps over which the temperature changes linearly from start to end; null is half of
    stop.max_env_steps."""
    players: Literal[1, 2] = 1
    """Number of players. With 2 players who take turns, a reward belongs to the acting player, and is a loss for the
    opponent."""
    discount: Discount = 0.997
    """Discount per environment step."""
    n_step: NSteps = 5
    """Steps of reward summed before bootstrapping from the target network."""
    unroll_steps: UnrollSteps = 5
    """Unrolled steps of the model in training. An update takes longer in proportion."""
    reanalyze_ratio: Fraction = 0.0
    """Share of a batch with policy targets from a new search with the target network, in the learner. These searches
    take most of the time of an update: `unroll_steps` + 1 searches per row. With `reanalyzer.count`, workers search
    instead, and this is the number of searched rows per drawn row."""
    target_update_iters: Positive = 100
    """Gradient updates between hard copies of the network into the target network."""
    hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] | None = None
    """Units of the hidden layers between a non-image observation and its latent state. Null is [128]."""
    latent: Units = 128
    """Numbers in a latent state of a non-image observation, and units of the hidden layers that read a latent state."""
    channels: Annotated[int, Field(gt=0, le=1024), BeforeValidator(no_bool)] = 64
    """Channels of a latent state of an image (uint8 observations of two to four axes, boolean ones of three or four).
    Images are halved until neither side is longer than 8: images of 96 or 84 pixels have latent states of 6x6. Search
    and updates take longer in proportion to the square of the channels."""
    residual_blocks: Annotated[int, Field(gt=0, le=64), BeforeValidator(no_bool)] = 1
    """Residual blocks of two convolutions, for images: this number in the dynamics, in the layers shared by policy and
    value, and in the representation after the last halving. 1 is EfficientZero's network for Atari, 16 MuZero's."""
    head_hidden: Units = 32
    """Units of the hidden layer in the heads for reward, value and policy."""
    support_size: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 300
    """Rewards and values are distributions over the whole numbers from -support_size to support_size, after
    sign(x)(sqrt(|x| + 1) - 1) + 0.001 x. 300 reaches values of about 58,700 on either side."""
    projection_units: Units = 1024
    """Units of the projection, whose outputs the consistency loss compares. The layers of the projection are most of an
    update's arithmetic, and are not needed for acting."""
    projection_bottleneck: Units = 512
    """Units of the hidden layer that predicts a projection from the projection of a model step."""
    reward_coefficient: Annotated[NonNegativeFloat, MayChange()] = 1.0
    """Weight of the reward's cross-entropy in the loss."""
    value_coefficient: Annotated[NonNegativeFloat, MayChange()] = 0.25
    """Weight of the value's cross-entropy in the loss."""
    policy_coefficient: Annotated[NonNegativeFloat, MayChange()] = 1.0
    """Weight of the policy's cross-entropy in the loss."""
    entropy_coefficient: Annotated[NonNegativeFloat, MayChange()] = 0.005
    """Weight of the entropy bonus in the loss."""
    consistency_coefficient: NonNegativeFloat = 2.0
    """Weight of the consistency loss: a latent state predicted by the model should resemble the latent state of the
    true observation. With 0 no part of this loss is computed."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of the products that dominate an update: the consistency loss, and for images all convolutions.
    Searches use bfloat16 only for convolutions that read the observation. Processors with bfloat16 instructions compute
    these products several times as fast; the rest stays float32."""

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        if self.gumbel:
            found["policy.gumbel is true"] = (
                "policy.pb_c_base",
                "policy.pb_c_init",
                "policy.root_noise_alpha",
                "policy.root_noise_fraction",
                "policy.temperature_start",
                "policy.temperature_end",
                "policy.temperature_decay_env_steps",
            )
        else:
            of_gumbel = ("gumbel_considered_actions", "gumbel_c_visit", "gumbel_c_scale")
            found["policy.gumbel is false"] = tuple(f"policy.{name}" for name in of_gumbel)
        if not self.consistency_coefficient:
            found["policy.consistency_coefficient is 0"] = ("policy.projection_units", "policy.projection_bottleneck")
        return found

    @classmethod
    def with_current_names(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        return into_optimizer(values, "weight_decay", "weight_decay")

    @property
    def reanalyzed_share(self) -> float | None:
        return self.reanalyze_ratio

    @property
    def needs_whole_batches(self) -> str:
        return "muzero searches and learns whole batches"

    @property
    def lowers_products(self) -> bool:
        """See BuiltInConfig; MuZero has its own setting `precision`."""
        return False
