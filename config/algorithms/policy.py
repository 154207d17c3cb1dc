"""The section `policy` of a config: that of the algorithm which its `type` names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, cast, get_args

from pydantic import Discriminator, Tag

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.base import AlgorithmConfig
from remuda.config.algorithms.custom import BUILT_IN, CustomConfig
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.algorithms.q_learning import DqnConfig, R2d2Config, RainbowConfig
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config


def _algorithm(value: object) -> str | None:
    """Which of the sections below is meant; an algorithm that is not among them is looked up by its name."""
    kind = cast("dict[str, object]", value).get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return None if not isinstance(kind, str) else kind if kind in BUILT_IN else CUSTOM


CUSTOM = "custom"
"""Stands for every other `type`, in messages of validation and in the documentation."""
PolicyConfig = Annotated[
    Annotated[DqnConfig, Tag("dqn")]
    | Annotated[RainbowConfig, Tag("rainbow")]
    | Annotated[PpoConfig, Tag("ppo")]
    | Annotated[ImpalaConfig, Tag("impala")]
    | Annotated[MuZeroConfig, Tag("muzero")]
    | Annotated[R2d2Config, Tag("r2d2")]
    | Annotated[SacConfig, Tag("sac")]
    | Annotated[Td3Config, Tag("td3")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(_algorithm),
]
SETTINGS: Mapping[str, type[AlgorithmConfig]] = MappingProxyType(
    {tag.tag: kind for kind, tag in map(get_args, get_args(get_args(PolicyConfig)[0])) if tag.tag != CUSTOM}
)
"""The settings of Remuda's own algorithms, by `type`."""
