"""The settings of algorithms with an actor and twin critics, besides CrossQ: SAC, TD3, IQL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from remuda.config.algorithms.base import EXAMPLES, Actions, NetworkConfig
from remuda.config.section import (
    Discount,
    Float,
    Fraction,
    Hidden,
    MayChange,
    NonNegative,
    NonNegativeFloat,
    NSteps,
    Positive,
    PositiveFloat,
    Share,
    no_bool,
)


class TwinCriticConfig(NetworkConfig):
    """Settings of algorithms with an actor and twin critics."""

    replaced: ClassVar[tuple[str, ...]] = (*NetworkConfig.replaced, "normalization")
    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            "env.num_envs": 1,
            "learner.batch_size": 256,
            "learner.learning_rate": 3e-4,
            "learner.max_grad_norm": None,
            "learner.publish_interval_iters": 16,
            "collector.count": 1,
            "collector.chunk_env_steps": 16,
            "buffer.capacity": 1_000_000,
            "buffer.min_rows": 10_000,
            "buffer.prioritized": False,
            "buffer.samples_per_insert": 256,
        }
    )
    """Haarnoja et al. 2018, table 1; Fujimoto et al. 2018 and their code: batches of 256 rows, one update per
    environment step. The authors act by the newest policy; here the policy is at most 16 updates old, for fewer
    messages."""

    hidden: Hidden = (256, 256)
    """Units of the hidden layers of the actor and the critics, with relu between layers. An update takes longer in
    proportion to the square of the units."""
    critics: Annotated[int, Field(ge=2, le=100), BeforeValidator(no_bool)] = 2
    """Number of critics. The smallest of their values counts, since a single critic overestimates (Fujimoto et al.
    2018). More are more careful (SAC-N, An et al. 2021), and the time of an update grows with their number."""
    normalization: Literal["hyperspherical"] | None = None
    """Null has no normalisation of layers, and batch normalisation in crossq. `hyperspherical` (SimBaV2, Lee et al.
    2025, arXiv 2502.15280) keeps features and weights at length 1, so that learning stays steady with wide layers: each
    of `hidden` is then a residual block with inner layers four times as wide, observations are normalised and rewards
    divided. An update takes several times as long."""
    n_step: NSteps = 1
    """Steps of reward summed before bootstrapping. More steps propagate rewards sooner, but older policies chose these
    steps, without any correction; SAC then counts only the entropy of every n-th step, and explores less at the same
    temperature."""
    discount: Discount = 0.99
    """Discount per environment step."""
    actor_learning_rate: Annotated[PositiveFloat | None, MayChange(NonNegativeFloat)] = None
    """Step size of the actor; null is learner.learning_rate, the step size of the critics."""
    random_env_steps: NonNegative | None = None
    """Initial environment steps with uniformly random actions: an untrained policy sees little of the environment. Null
    is buffer.min_rows."""

    averaged_share: Share | None = None
    """Average the actor's weights over about this share of its updates so far (Polyak and Juditsky 1992). Best actions,
    those of evaluations and exports, are then the averaged actor's, and so are an export's outputs, from which others
    draw actions; collectors explore with the newest actor. A single update can make the newest actor fall for some
    thousand steps, and the average hardly moves with it. Larger shares are steadier and later. Null: best actions are
    those of the newest actor."""

    @property
    def actor_interval_iters(self) -> int:
        """Updates of the critics per update of the actor."""
        return 1

    @property
    def has_unit_weights(self) -> bool:
        """True to scale the weights before normalisations to length 1 after every update."""
        return self.normalization is not None

    @property
    def lowers_products(self) -> bool:
        return self.normalization is None and super().lowers_products

    @model_validator(mode="after")
    def _has_blocks_of_one_width(self) -> TwinCriticConfig:
        for key in ("hidden", "actor_hidden") if self.normalization is not None else ():
            widths: tuple[int, ...] = getattr(self, key, self.hidden)
            if len(set(widths)) != 1:
                raise ValueError(
                    f"normalization hyperspherical makes a residual block of each of {key}: at least one, all equal"
                )
        return self


class TargetConfig(TwinCriticConfig):
    """Settings of algorithms with target networks."""

    target_share: Annotated[Share, MayChange()] = 0.005
    """Share of the distance that target networks move towards the trained networks after an update (tau). Smaller
    values are steadier and slower; 1 copies the networks."""


class TemperedConfig(TwinCriticConfig):
    """Settings of soft actor-critics, which learn reward and entropy together."""

    temperature: Annotated[PositiveFloat | None, MayChange()] = None
    """Weight of the entropy (alpha). Null learns the weight, so that the policy keeps about `target_entropy`. A fixed
    weight must fit the size of the rewards: larger values explore more and give up return."""
    initial_temperature: PositiveFloat = 1.0
    """Initial value of a learned temperature."""
    target_entropy: Annotated[Float | None, MayChange()] = None
    """Entropy in nats that a learned temperature aims at, of actions in -1 … 1. Higher entropies explore more. Null is
    minus the number of action dimensions, and for Discrete actions (sac) `target_entropy_share` of the largest entropy
    of the legal actions."""

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        aims = ("policy.initial_temperature", "policy.target_entropy")
        return {} if self.temperature is None else {"policy.temperature is given, so none is learned": aims}


class SacConfig(TemperedConfig, TargetConfig):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905): reward and entropy together, with two critics and a
    learned temperature. Actions are a bounded Box, or Discrete (Christodoulou 2019)."""

    acts_in: ClassVar[tuple[Actions, ...]] = ("Discrete", "Box")
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType(
        {
            "CartPole-v1": EXAMPLES / "cartpole_sac.yaml",
            "HalfCheetah-v5": EXAMPLES / "half_cheetah_sac.yaml",
            "Hopper-v5": EXAMPLES / "hopper_sac.yaml",
            "Pendulum-v1": EXAMPLES / "pendulum_sac.yaml",
            "Walker2d-v5": EXAMPLES / "walker2d_sac.yaml",
        }
    )

    type: Literal["sac"] = "sac"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    target_entropy_share: Annotated[Fraction, MayChange()] = 0.98
    """Discrete actions only: see `target_entropy`. The default (Christodoulou's) keeps the policy almost uniformly
    random; where a single wrong action can end the episode, use less: CartPole takes 0.7."""

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        share, unused = ("policy.target_entropy_share",), super().unused_settings()
        if unused:
            return {reason: (*settings, *share) for reason, settings in unused.items()}
        return {} if self.target_entropy is None else {"policy.target_entropy is given": share}


class Td3Config(TargetConfig):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018). Actions are a bounded Box."""

    acts_in: ClassVar[tuple[Actions, ...]] = ("Box",)
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType({"Pendulum-v1": EXAMPLES / "pendulum_td3.yaml"})

    type: Literal["td3"] = "td3"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    exploration_noise: NonNegativeFloat = 0.1
    """Standard deviation of the normal noise in collectors, for actions in -1 … 1. With too little noise the policy
    never sees alternatives."""
    target_noise: Annotated[NonNegativeFloat, MayChange()] = 0.2
    """Standard deviation of the noise on the actions in targets, so that critics give similar
    actions similar values."""
    target_noise_clip: Annotated[NonNegativeFloat, MayChange()] = 0.5
    """Largest size of the noise on actions in targets."""
    policy_delay: Annotated[Positive, MayChange()] = 2
    """Updates of the critics per update of the actor and of the target networks."""

    @property
    def actor_interval_iters(self) -> int:
        return self.policy_delay


class IqlConfig(TargetConfig):
    """Implicit Q-learning (Kostrikov et al. 2021, arXiv 2110.06169), for a dataset: learns from no action outside the
    data. Actions are a bounded Box."""

    acts_in: ClassVar[tuple[Actions, ...]] = ("Box",)

    type: Literal["iql"] = "iql"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    expectile: Annotated[Fraction, MayChange()] = 0.7
    """Value of an observation among the values of the actions in the data: 0.5 is their mean, near 1 the best of them.
    Larger values put good pieces of different episodes together, and trust single lucky ones."""
    target_share: Annotated[Share, MayChange()] = 0.05
    """Share of the distance that the target critics move towards the critics after an update (tau). The paper has
    0.005, for a million updates: in HalfCheetah values were then a third of their size after 10,000 updates."""
    advantage_weight: Annotated[NonNegativeFloat, MayChange()] = 1.0
    """How strongly the actor prefers actions of high value (beta): 0 imitates all actions alike. Advantages are first
    divided by their root mean square in the batch; the paper divides rewards by the range of returns instead, and has 3
    for locomotion and 10 for mazes."""
    normalize_observations: bool = True
    """Normalise observations to running mean 0 and standard deviation 1, clipped at 10, unless convolutions or an
    `encoder` read them. Without, numbers of different size take the actor many more updates to tell apart."""
    largest_weight: PositiveFloat = 100.0
    """Bound of an action's weight in the loss of the actor."""
    exploration_noise: NonNegativeFloat = 0.1
    """Standard deviation of the normal noise in collectors, for actions in -1 … 1; offline there are none."""

    @property
    def needs_whole_batches(self) -> str:
        return "iql compares advantages within the whole batch"

    @model_validator(mode="after")
    def _has_its_own_network(self) -> IqlConfig:
        if self.network is not None:
            raise ValueError("network has no value of observations alone, which iql learns: give an encoder instead")
        return self
