"""Settings of SAC and TD3: an actor and two critics, learned from replayed steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import JsonValue

from remuda.config.algorithms.base import EXAMPLES, Actions
from remuda.config.algorithms.encoded import NetworkConfig
from remuda.config.numbers import (
    Discount,
    Float,
    Fraction,
    Hidden,
    NonNegative,
    NonNegativeFloat,
    NSteps,
    Positive,
    PositiveFloat,
    Share,
)
from remuda.config.section import MayChange


class TwinCriticConfig(NetworkConfig):
    """Settings of SAC and TD3."""

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
    n_step: NSteps = 1
    """Steps of reward summed before bootstrapping. More steps propagate rewards sooner, but older policies chose these
    steps, without any correction; SAC then counts only the entropy of every n-th step, and explores less at the same
    temperature."""
    discount: Discount = 0.99
    """Discount per environment step."""
    target_share: Annotated[Share, MayChange()] = 0.005
    """Share of the distance that target networks move towards the trained networks after an update (tau). Smaller
    values are steadier and slower; 1 copies the networks."""
    actor_learning_rate: Annotated[PositiveFloat | None, MayChange(NonNegativeFloat)] = None
    """Step size of the actor; null is learner.learning_rate, the step size of the critics."""
    random_env_steps: NonNegative | None = None
    """Initial environment steps with uniformly random actions: an untrained policy sees little of the environment. Null
    is buffer.min_rows."""


class SacConfig(TwinCriticConfig):
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
    temperature: Annotated[PositiveFloat | None, MayChange()] = None
    """Weight of the entropy (alpha). Null learns the weight, so that the policy keeps about `target_entropy`. A fixed
    weight must fit the size of the rewards: larger values explore more and give up return."""
    initial_temperature: PositiveFloat = 1.0
    """Initial value of a learned temperature."""
    target_entropy: Annotated[Float | None, MayChange()] = None
    """Entropy in nats that a learned temperature aims at, of actions in -1 … 1. Higher entropies explore more. Null is
    minus the number of action dimensions, and for Discrete actions `target_entropy_share` of the largest entropy of the
    legal actions."""
    target_entropy_share: Annotated[Fraction, MayChange()] = 0.98
    """Discrete actions only: see `target_entropy`. The default (Christodoulou's) keeps the policy almost uniformly
    random; where a single wrong action can end the episode, use less: CartPole takes 0.7."""

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        """See AlgorithmConfig."""
        aims = ("policy.target_entropy", "policy.target_entropy_share")
        if self.temperature is not None:
            return {"policy.temperature is given, so none is learned": ("policy.initial_temperature", *aims)}
        return {} if self.target_entropy is None else {"policy.target_entropy is given": aims[1:]}


class Td3Config(TwinCriticConfig):
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
