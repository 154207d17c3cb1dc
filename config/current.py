"""The numbers that settings have at a moment of a run: schedules of the config, and changes since the run began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from remuda.config.changing import may_change, schedules_of, with_numbers
from remuda.config.declaration import Schedule, value_at
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section

CHANGING = ("policy", "learner")
"""The sections of a config whose numbers may change."""

Number = int | float
Values = Mapping[str, Number]
"""Of settings, by dotted key: `learner.learning_rate`."""
Changes = Mapping[str, Sequence[tuple[int, Number]]]
"""By setting, from which env_step on it has which value; the newest last. They beat the schedules."""


def changeable(config: ExperimentConfig) -> tuple[str, ...]:
    """The settings that may change while a run goes on. Those of a custom algorithm are known where `policy` is of its
    class."""
    sections = ((name, cast("Section", getattr(config, name))) for name in CHANGING)
    return tuple(f"{section}.{name}" for section, inside in sections for name in may_change(type(inside)))


def schedules(config: ExperimentConfig) -> dict[str, Schedule]:
    """The schedules that settings of the config were given."""
    sections = ((name, cast("Section", getattr(config, name))) for name in CHANGING)
    return {
        f"{section}.{name}": points for section, inside in sections for name, points in schedules_of(inside).items()
    }


def values_at(config: ExperimentConfig, env_step: int, changes: Changes) -> dict[str, Number]:
    """The value of each setting that has a schedule, or was changed at some time, after so many environment steps.

    A schedule goes in straight lines; of a whole number it is rounded. A change is a step.
    """
    values: dict[str, Number] = {}
    planned = schedules(config)
    for key in (*planned, *(key for key in changes if key not in planned)):
        own = _own(config, key)
        if key in planned:
            value = value_at(planned[key], env_step)
            own = round(value) if isinstance(own, int) else value
        newest = next((value for step, value in reversed(changes.get(key, ())) if step <= env_step), own)
        if newest is not None:
            values[key] = newest
    return values


def with_values(config: ExperimentConfig, values: Values) -> ExperimentConfig:
    """The config with these numbers in place of its own, and of its schedules for them. They are not checked."""
    for section in CHANGING:
        inside = cast("Section", getattr(config, section))
        own = {name: values[key] for name in type(inside).model_fields if (key := f"{section}.{name}") in values}
        if own:
            config = config.model_copy(update={section: with_numbers(inside, own)})
    return config


def config_at(config: ExperimentConfig, env_step: int, changes: Changes) -> ExperimentConfig:
    """The config with the numbers that its settings have after so many environment steps."""
    values = values_at(config, env_step, changes)
    return with_values(config, values) if values else config


def _own(config: ExperimentConfig, key: str) -> Number | None:
    section, _, name = key.partition(".")
    return cast("Number | None", getattr(cast("Section", getattr(config, section)), name))
