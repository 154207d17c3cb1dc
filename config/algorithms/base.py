"""What the settings of all algorithms have in common, and what others ask an algorithm without running it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, cast

from pydantic import ConfigDict, JsonValue

from remuda.config.section import ScheduledSection

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
"""The folder of the examples, which come with the package."""
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
    def with_current_names(cls, values: Mapping[str, object]) -> Mapping[str, object]:
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


Values = Mapping[str, object]
"""The settings of a config, by section."""


def into_optimizer(values: Values, former: str, setting: str) -> Values:
    """Move a former setting of `policy` into `learner.optimizer_settings`, unless the config gives both."""
    policy, learner = _section(values, "policy"), _section(values, "learner")
    settings = None if learner is None else learner.get("optimizer_settings", {})
    if policy is None or former not in policy or not isinstance(settings, Mapping) or setting in settings:
        return values
    merged = {**cast("Values", settings), setting: policy[former]}
    left = {name: value for name, value in policy.items() if name != former}
    return {**values, "policy": left, "learner": {**(learner or {}), "optimizer_settings": merged}}


def into_schedules(values: Values, former: str, constants: Mapping[str, object]) -> Values:
    """Replace a former setting of `policy`, the env_step at which these numbers have fallen to 0, by schedules. Nothing
    is changed where a number has a schedule already.

    Args:
        values: the config's settings.
        former: the setting; null stands for no fall.
        constants: the numbers by dotted key, and the value of each where the config gives none.
    """
    policy = _section(values, "policy")
    if policy is None or former not in policy:
        return values
    end = policy[former]
    found: dict[str, object] = {
        **values,
        "policy": {name: value for name, value in policy.items() if name != former},
    }
    for key, default in constants.items() if end is not None else ():
        section, _, name = key.partition(".")
        inside = _section(found, section)
        number = default if inside is None else inside.get(name, default)
        if inside is None or isinstance(number, list | tuple):
            return values
        found[section] = {**inside, name: [[0, number], [end, 0]]}
    return found


def _section(values: Values, name: str) -> Values | None:
    """A section as a mapping; None if it was given as an object, which has today's settings only."""
    section = values.get(name, {})
    return cast("Values", section) if isinstance(section, Mapping) else None
