"""Settings that may be `auto`: their numbers are measured at the start of `remuda train` or `remuda launch`.

A config has numbers only. Until they are measured, those that `auto` has overridden stand in their places, or the
defaults.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import JsonValue

from remuda.config.schema import ExperimentConfig
from remuda.config.workers import CollectorConfig

AUTO = "auto"
COLLECTORS, NUM_ENVS, THREADS = "collector.count", "env.num_envs", "learner.precision"
SEGMENTS = "learner.segments_per_update"
"""Is settled with the first two, so that an update learns from as much as with their defaults."""


def without_auto(
    values: dict[str, JsonValue], file_values: dict[str, JsonValue]
) -> tuple[dict[str, JsonValue], frozenset[str]]:
    """Take `auto` out of the settings of a config; returns what is left, and which settings (dotted keys) it was.

    Numbers that the settings had before they were overridden (`file_values`) come back."""
    auto = frozenset(key for key in (COLLECTORS, NUM_ENVS, THREADS) if _at(values, key) == AUTO)
    for key in auto:
        before = _at(file_values, key)
        values = _with(values, key, before if isinstance(before, int) else None)
    least, count = _at(values, "collector.minimum"), _at(values, COLLECTORS) or CollectorConfig().count
    if COLLECTORS in auto and isinstance(least, int) and isinstance(count, int) and least > count:
        values = _with(values, COLLECTORS, least)
    return values, auto


def with_auto(values: dict[str, JsonValue], auto: Collection[str]) -> dict[str, JsonValue]:
    """Put `auto` back, for people."""
    for key in auto:
        values = _with(values, key, AUTO)
    return values


def obstacle_to_auto(config: ExperimentConfig, auto: Collection[str]) -> str | None:
    """Why these settings cannot be measured for this config, whichever command runs it; None if they can."""
    if config.env.kind == "pettingzoo":
        return "environments with several agents are not measured"
    if THREADS in auto and config.learner.ranks > 1:
        return "learner.threads is for one rank"
    return None


def _section(values: dict[str, JsonValue], name: str) -> dict[str, JsonValue]:
    section = values.get(name)
    return section if isinstance(section, dict) else {}


def _at(values: dict[str, JsonValue], key: str) -> JsonValue:
    section, name = key.split(".")
    return _section(values, section).get(name)


def _with(values: dict[str, JsonValue], key: str, value: int | str | None) -> dict[str, JsonValue]:
    """The same settings with this one; without it for None."""
    section, name = key.split(".")
    changed = {**_section(values, section), name: value}
    if value is None:
        del changed[name]
    return {**values, section: changed}
