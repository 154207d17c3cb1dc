"""Common settings of all algorithms, and facts about an algorithm before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, cast

from pydantic import ConfigDict, JsonValue

from remuda.config.section import ScheduledSection

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
"""Folder of the examples in the package."""
Actions = Literal["Discrete", "MultiDiscrete", "Box"]
"""Spaces of actions."""
Spaces = Literal["images", "Box actions", "Discrete actions"]
"""Spaces that sensible settings depend on: images come first, whatever the actions are."""


class AlgorithmConfig(ScheduledSection):
    """The section of an algorithm. Choosing and loading a config asks this class, for built-in algorithms and a user's
    own alike; the roles ask the declaration (remuda.config.declaration)."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType({})
    """Defaults of settings in other sections, by dotted key: `{"learner.batch_size": 256}`. These replace the defaults
    of the schema; a value in the config file always wins. See remuda.config.defaults."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType({})
    """Config files for environments, by `env.id`, used if only an algorithm and an environment are named."""

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        """Return sensible settings, by dotted key as in `defaults`, for environments with these spaces and without a
        stored config; defaults apply to the rest. `in_parts`: observations have several parts."""
        return {}

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        """Return settings without effect, as dotted keys, by the reason: {"policy.recurrent is null":
        ("policy.recurrent_units",)}. A user who has set one of these settings gets a warning."""
        return {}

    @property
    def user_code(self) -> Mapping[str, str]:
        """Names of the user's own code in these settings, besides `policy.type`, as `module:name` by dotted key."""
        return {}


class BuiltInConfig(AlgorithmConfig):
    """The section of a built-in algorithm. Its properties announce the later declaration: a config is checked before
    its declaration exists."""

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})
    acts_in: ClassVar[tuple[Actions, ...]] = ()
    """Supported action spaces, for the message to a user whose algorithm does not support the action space."""

    type: str
    """Name of the algorithm."""

    @classmethod
    def with_current_names(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Rename settings of a former version of the algorithm; takes and returns settings of a config by section."""
        return values

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment; None for rows other than segments."""
        return None

    @property
    def reanalyzed_share(self) -> float | None:
        """The share of `Declaration.reanalyzed`; None for algorithms without recomputed columns."""
        return None

    @property
    def learns_from_parts(self) -> bool:
        """`Declaration.learns_from_parts`."""
        return True

    @property
    def needs_whole_batches(self) -> str:
        """Reason why a setting prevents learning from parts of a batch, or an empty text."""
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
    """Replace a former setting of `policy`, the env_step at which numbers have fallen to 0, by schedules. Changes
    nothing if a number has a schedule already.

    Args:
        values: the config's settings.
        former: the setting; null means no fall.
        constants: the numbers by dotted key, with the values for numbers missing from the config.
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
    """Return a section as a mapping; None for an object, which has current settings only."""
    section = values.get(name, {})
    return cast("Values", section) if isinstance(section, Mapping) else None
