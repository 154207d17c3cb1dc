"""The settings of CrossQ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue

from remuda.config.algorithms.base import EXAMPLES, Actions
from remuda.config.algorithms.twin_critics import TemperedConfig
from remuda.config.section import Hidden, MayChange, Positive, PositiveFloat, Share, no_bool


class CrossQConfig(TemperedConfig):
    """CrossQ (Bhatt et al. 2024, arXiv 1902.05605): soft actor-critic with batch normalisation. Learns from fewer
    environment steps than SAC. Actions are a bounded Box."""

    acts_in: ClassVar[tuple[Actions, ...]] = ("Box",)
    recommended_for = ("Box actions",)
    replaced: ClassVar[tuple[str, ...]] = (*TemperedConfig.replaced, "actor_hidden")
    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            **{key: value for key, value in TemperedConfig.defaults.items() if key != "learner.learning_rate"},
            "learner.optimizer_settings": {"betas": [0.5, 0.999]},
            "buffer.min_rows": 5_000,
        }
    )
    """Bhatt et al. 2024, table 2, with the batches and messages of SAC."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType(
        {
            "HalfCheetah-v5": EXAMPLES / "half_cheetah_crossq.yaml",
            "Hopper-v5": EXAMPLES / "hopper_crossq.yaml",
            "Pendulum-v1": EXAMPLES / "pendulum_crossq.yaml",
            "Walker2d-v5": EXAMPLES / "walker2d_crossq.yaml",
        }
    )

    formerly: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {"atoms": None, "normalization": None, "averaged_share": None}
    )

    type: Literal["crossq"] = "crossq"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Name of the algorithm."""
    hidden: Hidden = (256, 256)
    """Units of the hidden layers of the critics, with batch normalisation and relu between layers. The paper has [2048,
    2048], for a GPU: an update of these takes 30 times as long on a processor core."""
    actor_hidden: Hidden = (256, 256)
    """Units of the hidden layers of the actor, with batch normalisation and relu between layers."""
    target_share: Share | None = 0.015
    """Share of the distance that the target critics move towards the critics after an update of the actor (tau). Null
    has no target critics, as the paper with its wide layers: with 256 units the values then run away for the first
    10,000 environment steps, in Hopper-v5 to 1,285, where 47 is learned with target critics."""
    policy_delay: Annotated[Positive, MayChange()] = 3
    """Updates of the critics per update of the actor and of the temperature."""
    normalization_share: Share = 0.01
    """Share of the newest batch in the running moments of batch normalisation, which collectors act by."""
    atoms: Annotated[int, Field(gt=1, le=1000), BeforeValidator(no_bool)] | None = 101
    """Fixed returns whose probabilities each critic learns (XQC, Palenicek et al. 2025, arXiv 2509.25174), evenly from
    -5 to 5, where 1 is the root mean square of the discounted returns in replay: rewards are divided by this size. Null
    has a single value per critic and undivided rewards, as CrossQ's paper; `initial_temperature` is then about 1."""
    initial_temperature: PositiveFloat = 0.01
    """Initial value of a learned temperature, the weight of the entropy beside the divided rewards."""
    averaged_share: Share | None = 0.05
    """Average the actor's weights over about this share of its updates so far (Polyak and Juditsky 1992). Best actions,
    those of evaluations and exports, are then the averaged actor's, and so are an export's outputs, from which others
    draw actions; collectors explore with the newest actor. Null: best actions are those of the newest actor. In
    Hopper-v5 (seed 1), of 14 evaluations after 70,000 steps, 5 were below 3,000 with the newest actor, and 2 with the
    average."""
    normalize_weights: bool = True
    """Scale the weights of each unit before a normalisation to length 1 after every update (Palenicek et al. 2025,
    arXiv 2502.07523). Growing weights would make later steps smaller and smaller."""

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        share = {"policy.normalization is hyperspherical": ("policy.normalization_share",)}
        return {**super().unused_settings(), **({} if self.normalization is None else share)}

    @property
    def actor_interval_iters(self) -> int:
        return self.policy_delay

    @property
    def has_unit_weights(self) -> bool:
        return self.normalize_weights

    @property
    def needs_whole_batches(self) -> str:
        return "crossq normalises by the moments of the whole batch" if self.normalization is None else ""

    @property
    def lowers_products(self) -> bool:
        return False
