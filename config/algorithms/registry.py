"""The list of Remuda's algorithms. A new algorithm adds a line here, besides its settings and its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.base import BuiltInConfig
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.algorithms.q_learning import DqnConfig, PqnConfig, R2d2Config, RainbowConfig
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config


@dataclass(frozen=True)
class BuiltIn:
    """An algorithm of Remuda."""

    settings: type[BuiltInConfig]
    """Class of the section in a config."""
    entry: str
    """`module:Class` of the remuda.policy.entry.AlgorithmEntry, imported on demand."""


_FOLDER = "remuda.policy.algorithms"
BUILT_IN: Mapping[str, BuiltIn] = MappingProxyType(
    {
        "dqn": BuiltIn(DqnConfig, f"{_FOLDER}.dqn.entry:DqnEntry"),
        "rainbow": BuiltIn(RainbowConfig, f"{_FOLDER}.rainbow.entry:RainbowEntry"),
        "ppo": BuiltIn(PpoConfig, f"{_FOLDER}.actor_critic.entries:PpoEntry"),
        "impala": BuiltIn(ImpalaConfig, f"{_FOLDER}.actor_critic.entries:ImpalaEntry"),
        "muzero": BuiltIn(MuZeroConfig, f"{_FOLDER}.muzero.entry:MuZeroEntry"),
        "pqn": BuiltIn(PqnConfig, f"{_FOLDER}.dqn.entry:PqnEntry"),
        "r2d2": BuiltIn(R2d2Config, f"{_FOLDER}.r2d2.entry:R2d2Entry"),
        "sac": BuiltIn(SacConfig, f"{_FOLDER}.twin_critics.entries:SacEntry"),
        "td3": BuiltIn(Td3Config, f"{_FOLDER}.twin_critics.entries:Td3Entry"),
    }
)
"""Built-in algorithms by `policy.type`; all other types are custom."""
DEFAULT = DqnConfig()
"""The default section `policy`; its type is the default of `policy.type`."""
