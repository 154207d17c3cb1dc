"""The list of Remuda's algorithms. A new algorithm adds a line here, besides its settings and its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Union, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.base import AlgorithmConfig, BuiltInConfig
from remuda.config.algorithms.bootstrapped_dqn import BootstrappedDqnConfig
from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.algorithms.q_learning import DqnConfig, PqnConfig, R2d2Config, RainbowConfig
from remuda.config.algorithms.twin_critics import IqlConfig, SacConfig, Td3Config
from remuda.config.declaration import Declaration, Segments
from remuda.config.section import REFERENCE, all_finite, as_json


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
        "bootstrapped_dqn": BuiltIn(BootstrappedDqnConfig, f"{_FOLDER}.bootstrapped_dqn.entry:BootstrappedDqnEntry"),
        "pqn": BuiltIn(PqnConfig, f"{_FOLDER}.dqn.entry:PqnEntry"),
        "r2d2": BuiltIn(R2d2Config, f"{_FOLDER}.r2d2.entry:R2d2Entry"),
        "sac": BuiltIn(SacConfig, f"{_FOLDER}.twin_critics.entries:SacEntry"),
        "crossq": BuiltIn(CrossQConfig, f"{_FOLDER}.twin_critics.entries:CrossQEntry"),
        "td3": BuiltIn(Td3Config, f"{_FOLDER}.twin_critics.entries:Td3Entry"),
        "iql": BuiltIn(IqlConfig, f"{_FOLDER}.twin_critics.entries:IqlEntry"),
    }
)
"""Built-in algorithms by `policy.type`; all other types are custom."""
DEFAULT = DqnConfig()
"""The default section `policy`; its type is the default of `policy.type`."""


def _as_setting(key: str, value: object) -> JsonValue:
    try:
        return _SETTING.validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise ValueError(f"{key} {problem}") from None


_SETTING: TypeAdapter[JsonValue] = TypeAdapter(
    Annotated[JsonValue, BeforeValidator(as_json), AfterValidator(all_finite)]
)


class CustomConfig(AlgorithmConfig):
    """Your own algorithm, or an algorithm of an installed package, with the settings of its class."""

    model_config = ConfigDict(extra="allow")
    type: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$",
            max_length=200,
            json_schema_extra={"not": {"enum": [*BUILT_IN]}},
        ),
    ]
    """`module:Class`, looked up in the folder of the config file first; or a name from an installed package (entry
    point group `remuda.algorithms`)."""
    declaration: Declaration | None = None
    """Declaration of the class, filled in at loading, for the coordinator, which does not import the class."""

    @model_validator(mode="before")
    @classmethod
    def _plain_settings(cls, values: object) -> object:
        """Convert settings to JSON values; the class checks them later."""
        if not isinstance(values, dict):
            return values
        given = cast("dict[str, object]", values)
        return {key: value if key in cls.model_fields else _as_setting(key, value) for key, value in given.items()}

    @property
    def user_code(self) -> Mapping[str, str]:
        """See AlgorithmConfig: encoder and network, of a variant of a built-in algorithm."""
        named = {f"policy.{key}": self.settings.get(key) for key in ("encoder", "network")}
        return {key: name for key, name in named.items() if isinstance(name, str) and re.match(REFERENCE, name)}

    @property
    def settings(self) -> dict[str, JsonValue]:
        """The settings of the class."""
        return dict(self.model_extra or {})

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment; None for rows other than segments."""
        rows = None if self.declaration is None else self.declaration.rows
        return rows.horizon_steps if isinstance(rows, Segments) else None

    @property
    def reanalyzed_share(self) -> float | None:
        """See BuiltInConfig; 0 as long as the declaration is not filled in."""
        if self.declaration is None:
            return 0.0
        return None if self.declaration.reanalyzed is None else self.declaration.reanalyzed.share

    @property
    def needs_whole_batches(self) -> str:
        """See BuiltInConfig; empty as long as the declaration is not filled in."""
        allows = self.declaration is None or self.declaration.learns_from_parts
        return "" if allows else "its declaration does not say learns_from_parts"

    @property
    def lowers_products(self) -> bool:
        """See BuiltInConfig; True as long as the declaration is not filled in."""
        return self.declaration is None or self.declaration.lowers_products


CUSTOM = "custom"
"""Stands for all remaining values of `type`, in messages of validation and in the documentation."""


def _algorithm(value: object) -> str | None:
    """Return the tag of a section; CUSTOM for an algorithm that is not built in."""
    kind = cast("dict[str, object]", value).get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return None if not isinstance(kind, str) else kind if kind in BUILT_IN else CUSTOM


if TYPE_CHECKING:
    PolicyConfig = BuiltInConfig | CustomConfig
else:
    _TAGGED = [Annotated[one.settings, Tag(name)] for name, one in BUILT_IN.items()]
    PolicyConfig = Annotated[Union[(*_TAGGED, Annotated[CustomConfig, Tag(CUSTOM)])], Discriminator(_algorithm)]
