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

from remuda.config.algorithms.base import EXAMPLES, Actions, into_optimizer
from remuda.config.algorithms.encoded import EncoderConfig
from remuda.config.numbers import (
    Discount,
    Fraction,
    Hidden,
    NonNegativeFloat,
    NSteps,
    Positive,
    PositiveFloat,
    Units,
    UnrollSteps,
    at_least_one_layer,
    no_bool,
)
from remuda.config.section import MayChange


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
    code: 3e-3 for Adam (the papers have SGD), a norm of 10, which the schema has already, and one update for each four
    steps. Rows are large, so few batches are fetched at once."""
    acts_in: ClassVar[tuple[Actions, ...]] = ("Discrete",)
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType(
        {"CartPole-v1": EXAMPLES / "cartpole_gumbel_muzero.yaml", "ALE/Pong-v5": EXAMPLES / "pong_muzero.yaml"}
    )

    type: Literal["muzero"] = "muzero"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Which algorithm."""
    simulations: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 50
    """Simulations of each search, in collectors and evaluators: one evaluation of the model each, for all environments
    of a collector at once. More choose better actions, and take longer in proportion."""
    gumbel: bool = False
    """Search by the rule of Gumbel MuZero (Danihelka et al. 2022), which improves the policy with as few as 2
    simulations. Collectors then explore by Gumbel noise alone: `root_noise_…`, `temperature_…` and `pb_c_…` are not
    used."""
    gumbel_considered_actions: Positive = 16
    """Actions of the root that a search with `gumbel` tries at most; with fewer simulations it tries fewer."""
    gumbel_c_visit: NonNegativeFloat = 50.0
    """The larger, the sooner values decide against the network's policy, however few simulations there were."""
    gumbel_c_scale: PositiveFloat = 1.0
    """How much values count against the network's policy. The paper has 1.0 for board games and 0.1 for Atari."""
    pb_c_base: PositiveFloat = 19_652.0
    """c2 of the search's formula: with so many visits the prior weighs notably more than at the start."""
    pb_c_init: NonNegativeFloat = 1.25
    """c1 of the search's formula: how much the prior weighs against the values that the search has found."""
    value_delta_min: PositiveFloat = 0.01
    """The search brings values to 0 … 1 between the least and the largest it has seen; differences below this are not
    enlarged."""
    root_noise_alpha: PositiveFloat = 0.3
    """Parameter of the Dirichlet noise on the prior of the root, in collectors. Small values favour single actions."""
    root_noise_fraction: Fraction = 0.25
    """Share of the noise in the prior of the root; 0 explores by the temperature alone."""
    temperature_start: NonNegativeFloat = 0.25
    """Collectors draw actions in proportion to visits ** (1 / temperature): at env_step 0. At 0 they take the most
    visited."""
    temperature_end: NonNegativeFloat = 0.25
    """The same after the decay; evaluations always take the most visited action."""
    temperature_decay_env_steps: Positive | None = None
    """Environment steps over which the temperature changes linearly from start to end; null is half of
    stop.max_env_steps."""
    players: Literal[1, 2] = 1
    """2: two players take turns, each reward is for the player who acted, and what is good for one is bad for the
    other."""
    discount: Discount = 0.997
    """Discount per environment step."""
    n_step: NSteps = 5
    """Steps of reward summed before bootstrapping from the target network."""
    unroll_steps: UnrollSteps = 5
    """Steps that the model is unrolled in training. An update takes longer in proportion."""
    reanalyze_ratio: Fraction = 0.0
    """Share of each batch whose policy targets come from a new search with the target network, in the learner. Searches
    take most of the time of an update: `unroll_steps` + 1 of them for each such row. With `reanalyzer.count` workers
    search instead, so many rows for each row that is drawn."""
    target_update_iters: Positive = 100
    """Gradient updates between hard copies of the network into the target network."""
    hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] | None = None
    """Units of each hidden layer between an observation that is no image and its latent state. Null is [128]."""
    latent: Units = 128
    """Numbers in a latent state of an observation that is no image, and units of each hidden layer that reads one."""
    channels: Annotated[int, Field(gt=0, le=1024), BeforeValidator(no_bool)] = 64
    """Channels of a latent state of an image (uint8 observations of two to four axes, boolean ones of three or four).
    Images are halved until neither side is longer than 8, so that those of 96 or 84 pixels have latent states of 6x6.
    Search and updates take longer in proportion to its square."""
    residual_blocks: Annotated[int, Field(gt=0, le=64), BeforeValidator(no_bool)] = 1
    """Residual blocks of two convolutions each, for images: so many in the dynamics, in what policy and value share,
    and in the representation after the last halving. 1 is EfficientZero's network for Atari, 16 MuZero's."""
    head_hidden: Units = 32
    """Units of the hidden layer of each head: reward, value and policy."""
    support_size: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 300
    """Rewards and values are distributions over the whole numbers from -support_size to support_size, after
    sign(x)(sqrt(|x| + 1) - 1) + 0.001 x. 300 reaches values of about 58,700 on either side."""
    projection_units: Units = 1024
    """Units of the projection whose outputs consistency compares. Its layers are most of an update's arithmetic, and
    are not needed for acting."""
    projection_bottleneck: Units = 512
    """Units of the hidden layer that predicts one projection from the other."""
    reward_coefficient: Annotated[NonNegativeFloat, MayChange()] = 1.0
    """Weight of the reward's cross-entropy in the loss."""
    value_coefficient: Annotated[NonNegativeFloat, MayChange()] = 0.25
    """Weight of the value's cross-entropy in the loss."""
    policy_coefficient: Annotated[NonNegativeFloat, MayChange()] = 1.0
    """Weight of the policy's cross-entropy in the loss."""
    entropy_coefficient: Annotated[NonNegativeFloat, MayChange()] = 0.005
    """Weight of the entropy bonus in the loss."""
    consistency_coefficient: NonNegativeFloat = 2.0
    """Weight of the consistency loss: a latent state that the model predicts should resemble that of the observation
    which really came. With 0 nothing of it is computed."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the products that are most of an update: those of the consistency loss, and for images those of all
    convolutions, of which searches compute those in bfloat16 that read the observation. Processors that have
    instructions for it compute them several times as fast; everything else stays float32."""

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        """See AlgorithmConfig."""
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
        """See BuiltInConfig."""
        return into_optimizer(values, "weight_decay", "weight_decay")

    @property
    def reanalyzed_share(self) -> float | None:
        """See BuiltInConfig."""
        return self.reanalyze_ratio

    @property
    def learns_from_parts(self) -> bool:
        """See BuiltInConfig."""
        return False

    @property
    def lowers_products(self) -> bool:
        """See BuiltInConfig; it has a `precision` of its own."""
        return False
