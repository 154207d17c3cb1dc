"""Settings of bootstrapped DQN."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue

from remuda.config.algorithms.base import Spaces
from remuda.config.algorithms.q_learning import FOR_IMAGES, QLearningConfig
from remuda.config.section import Fraction, MayChange, NonNegativeFloat, NSteps, Positive, no_bool


class BootstrappedDqnConfig(QLearningConfig):
    """Bootstrapped DQN with prior networks (Osband et al. 2016 and 2018): an ensemble of Q-networks. Each member also
    has a fixed random network, the prior, whose values are added. A collector follows one member for a whole episode.
    So members disagree where experience is missing, and exploration is deep: rewards are found that take a long row of
    right actions. Actions must be Discrete."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            "learner.batch_size": 128,
            "learner.publish_interval_iters": 8,
            "buffer.samples_per_insert": 64.0,
            "buffer.min_rows": 128,
            "buffer.prioritized": False,
        }
    )
    """As the agent `boot_dqn` of bsuite (Osband et al. 2020), with half as many updates, and a target network that
    changes less often: with its 4 updates, values on CartPole grew without bound."""

    type: Literal["bootstrapped_dqn"] = "bootstrapped_dqn"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    members: Annotated[int, Field(gt=1, le=1000), BeforeValidator(no_bool)] = 20
    """Networks of the ensemble. More members explore more evenly, and an update takes longer."""
    prior_scale: NonNegativeFloat = 3.0
    """Factor of the priors' values, in units of the reward. A larger factor explores for longer; 0 is without
    priors (Osband et al. 2016)."""
    n_step: NSteps = 1
    """Steps of reward summed before bootstrapping."""
    target_update_iters: Annotated[Positive, MayChange()] = 100
    """Gradient updates between hard copies of the online network into the target network."""
    epsilon_start: Fraction = 0.0
    """Share of random actions at env_step 0, besides the exploration of the members."""
    epsilon_end: Fraction = 0.0
    """Share of random actions after the decay."""

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        if spaces != "images":
            return {}
        return {**FOR_IMAGES, "policy.members": 10, "buffer.samples_per_insert": 8.0}

    @property
    def lowers_products(self) -> bool:
        return False
