"""Settings that may be `auto`, measured at the start of `remuda train` or `remuda launch`.

A config has numbers only. Until the measurement, the config holds the numbers overridden by `auto`, or the defaults.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import JsonValue

from remuda.config.schema import ExperimentConfig
from remuda.config.workers import CollectorConfig

AUTO = "auto"
COLLECTORS, NUM_ENVS, THREADS = "collector.count", "env.num_envs", "learner.threads"
SEGMENTS = "learner.segments_per_update"
"""Set together with the number of collectors and environments, so that an update learns from the same amount as with
their defaults."""


def without_auto(
    values: dict[str, JsonValue], file_values: dict[str, JsonValue]
) -> tuple[dict[str, JsonValue], frozenset[str]]:
    """Remove `auto` from the settings of a config; return the rest, and the settings (dotted keys) with `auto`.

    Numbers from before an override (`file_values`) come back.
    """
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
    """Return the reason why these settings cannot be measured for this config, by any command, or None."""
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
    """Return the settings with a new value, or without the key if the value is None."""
    section, name = key.split(".")
    changed = {**_section(values, section), name: value}
    if value is None:
        del changed[name]
    return {**values, section: changed}
