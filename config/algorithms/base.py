"""What the settings of all algorithms have in common, and what others ask an algorithm without running it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal

from pydantic import ConfigDict, JsonValue

from remuda.config.changing import ScheduledSection

Actions = Literal["Discrete", "MultiDiscrete", "Box"]
"""Spaces of actions."""
Spaces = Literal["images", "Box actions", "Discrete actions"]
"""What sensible settings depend on: images are looked at first, whatever the actions are."""


class AlgorithmConfig(ScheduledSection):
    """The section of an algorithm. What a class derived from it says of itself is asked where configs are chosen and
    loaded, of built-in algorithms and of a user's own alike; what the roles ask is in remuda.config.declaration."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType({})
    """Defaults of settings in other sections, by dotted key: `{"learner.batch_size": 256}`. They take the place of the
    schema's defaults; a value in the config file always wins. See remuda.config.defaults."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType({})
    """Config files that are taken for an environment where nothing but the algorithm is named, by `env.id`."""

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        """Sensible settings, by dotted key as in `defaults`, for environments with such spaces that have no stored
        config; the defaults are taken for all others. `in_parts`: observations have several parts."""
        return {}

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        """Settings that are not read beside the others, as dotted keys, by the reason: {"policy.recurrent is null":
        ("policy.recurrent_units",)}. Who has set one of them is told."""
        return {}

    @property
    def user_code(self) -> Mapping[str, str]:
        """What the settings name of the user's own code, as `module:name` by dotted key, besides `policy.type`."""
        return {}


class BuiltInConfig(AlgorithmConfig):
    """The section of one of Remuda's own algorithms. Its properties say what its declaration will say: a config is
    checked before there is one."""

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})
    acts_in: ClassVar[tuple[Actions, ...]] = ()
    """The spaces of actions that it takes, for whoever has tried another algorithm in one of them."""

    type: str
    """Which algorithm."""

    @classmethod
    def of_today(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Take the settings of a config, by section; return them by today's names, where a former version of the
        algorithm had others."""
        return values

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment; None where rows of experience are not segments."""
        return None

    @property
    def reanalyzed_share(self) -> float | None:
        """The share of `Declaration.reanalyzed`; None if the algorithm declares nothing to compute again."""
        return None

    @property
    def learns_from_parts(self) -> bool:
        """`Declaration.learns_from_parts`."""
        return True

    @property
    def needs_whole_batches(self) -> str:
        """Why it does not learn from parts, where that depends on a setting; else empty."""
        return ""

    @property
    def lowers_products(self) -> bool:
        """`Declaration.lowers_products`."""
        return True
