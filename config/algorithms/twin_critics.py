"""The settings of SAC and TD3, which learn an actor with two critics from replayed steps."""

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
    """Settings that both algorithms have."""

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
    """Haarnoja et al. 2018, table 1; Fujimoto et al. 2018 and their code: batches of 256 rows, one update for each
    environment step. The authors act by the newest policy; here it is at most 16 updates old, which costs fewer
    messages."""

    hidden: Hidden = (256, 256)
    """Units of each hidden layer of the actor and of each critic, with relu between them. An update takes longer in
    proportion to the square of the units."""
    n_step: NSteps = 1
    """Steps of reward summed before bootstrapping. More bring rewards back sooner, but those steps were chosen by older
    policies, which nothing corrects for; and SAC then counts only the entropy of every n-th step, so it explores less
    for the same temperature."""
    discount: Discount = 0.99
    """Discount per environment step."""
    target_share: Annotated[Share, MayChange()] = 0.005
    """The share of the way that target networks go to the networks in training after an update (tau). Smaller values
    are steadier and slower; 1 makes them copies."""
    actor_learning_rate: Annotated[PositiveFloat | None, MayChange(NonNegativeFloat)] = None
    """Step size of the actor; null is learner.learning_rate, which is that of the critics."""
    random_env_steps: NonNegative | None = None
    """Collectors act at random, evenly over all actions, for so many environment steps: a first policy sees little of
    the environment. Null is buffer.min_rows."""


class SacConfig(TwinCriticConfig):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905): reward and entropy together, with two critics and a
    temperature that is learned. Actions are a bounded Box, or Discrete (Christodoulou 2019)."""

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
    """Which algorithm."""
    temperature: Annotated[PositiveFloat | None, MayChange()] = None
    """Weight of the entropy (alpha). Null learns it, so that the policy keeps about `target_entropy`. A fixed one must
    fit the size of the rewards: larger values explore more and give up return for it."""
    initial_temperature: PositiveFloat = 1.0
    """The temperature before the first update, if it is learned."""
    target_entropy: Annotated[Float | None, MayChange()] = None
    """Entropy in nats that a learned temperature aims at, of actions in -1 … 1. Higher ones explore more. Null is minus
    the numbers of an action, and for Discrete actions `target_entropy_share` of the largest that legal ones allow."""
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
    """Which algorithm."""
    exploration_noise: NonNegativeFloat = 0.1
    """Standard deviation of the normal noise that collectors add to actions in -1 … 1. Without enough of it the policy
    never sees what else there is to do."""
    target_noise: Annotated[NonNegativeFloat, MayChange()] = 0.2
    """Standard deviation of the noise on the actions with which targets are computed, so that critics value similar
    actions alike."""
    target_noise_clip: Annotated[NonNegativeFloat, MayChange()] = 0.5
    """Largest size of that noise."""
    policy_delay: Annotated[Positive, MayChange()] = 2
    """Updates of the critics for each update of the actor and of the target networks."""
