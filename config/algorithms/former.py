"""Settings of former versions, by today's names: configs and runs from before can still be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

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
