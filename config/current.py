"""A config at a moment of a run: numbers from schedules and changes, and the task of the environment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import cast

from pydantic import JsonValue

from remuda.config.errors import value_at, with_value
from remuda.config.plain import masked
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Schedule, Section, may_change, schedules_of, with_numbers
from remuda.config.section import value_at as at_step
from remuda.config.workers import CollectorConfig

CHANGING = ("policy", "learner")
"""Sections with numbers that may change."""

Number = int | float
Values = Mapping[str, Number]
"""Of settings, by dotted key: `learner.learning_rate`."""
Changes = Mapping[str, Sequence[tuple[int, Number]]]
"""New values by setting, with the env_step of each change; the newest change comes last. Changes override schedules."""


def changeable(config: ExperimentConfig) -> tuple[str, ...]:
    """Return the settings that may change during a run. For a custom algorithm, `policy` must be of its class."""
    sections = ((name, cast("Section", getattr(config, name))) for name in CHANGING)
    return tuple(f"{section}.{name}" for section, inside in sections for name in may_change(type(inside)))


def schedules(config: ExperimentConfig) -> dict[str, Schedule]:
    """Return the schedules in a config."""
    sections = ((name, cast("Section", getattr(config, name))) for name in CHANGING)
    return {
        f"{section}.{name}": points for section, inside in sections for name, points in schedules_of(inside).items()
    }


def values_at(config: ExperimentConfig, env_step: int, changes: Changes) -> dict[str, Number]:
    """Return the values of all settings with a schedule or a change, after a number of environment steps.

    Schedules are piecewise linear, and rounded for whole numbers. A change is a step.
    """
    values: dict[str, Number] = {}
    planned = schedules(config)
    for key in (*planned, *(key for key in changes if key not in planned)):
        own = _own(config, key)
        if key in planned:
            value = at_step(planned[key], env_step)
            own = round(value) if isinstance(own, int) else value
        newest = next((value for step, value in reversed(changes.get(key, ())) if step <= env_step), own)
        if newest is not None:
            values[key] = newest
    return values


def with_values(config: ExperimentConfig, values: Values) -> ExperimentConfig:
    """Return the config with these numbers in place of its numbers and schedules, without validation."""
    for section in CHANGING:
        inside = cast("Section", getattr(config, section))
        own = {name: values[key] for name in type(inside).model_fields if (key := f"{section}.{name}") in values}
        if own:
            config = config.model_copy(update={section: with_numbers(inside, own)})
    return config


def config_at(config: ExperimentConfig, env_step: int, changes: Changes) -> ExperimentConfig:
    """Return the config with the numbers after this number of environment steps."""
    values = values_at(config, env_step, changes)
    return with_values(config, values) if values else config


def _own(config: ExperimentConfig, key: str) -> Number | None:
    section, _, name = key.partition(".")
    return cast("Number | None", getattr(cast("Section", getattr(config, section)), name))


def on_task(config: ExperimentConfig, kwargs_json: str) -> ExperimentConfig:
    """Return the settings of a task: its arguments (JSON) replace or extend `env.kwargs`; an empty text changes
    nothing."""
    if not kwargs_json:
        return config
    kwargs = {**config.env.kwargs, **cast("dict[str, JsonValue]", json.loads(kwargs_json))}
    return config.model_copy(update={"env": config.env.model_copy(update={"kwargs": kwargs})})


def kwargs_of_stage(config: ExperimentConfig, stage: int) -> str:
    """The arguments, as JSON, of the stage of `env.schedule` with this number, counted from 1; empty for 0."""
    return json.dumps(config.env.schedule[stage - 1].kwargs) if stage else ""


def without_secrets(kwargs_json: str) -> str:
    """Mask secrets in the arguments of a task, for people."""
    return json.dumps(masked(json.loads(kwargs_json))) if kwargs_json else kwargs_json


def evaluated(config: ExperimentConfig) -> ExperimentConfig:
    """Return the settings with the environment of evaluations as `env`: see `evaluator.env`."""
    other, env = config.evaluator.env, config.env
    if other is None:
        return config
    same = other.id is None and other.make is None
    given = other.model_dump(exclude_none=True)
    kwargs = {**(env.kwargs if same else {}), **other.kwargs}
    source = {} if same else {"id": None, "make": None, "max_episode_steps": None}
    return config.model_copy(update={"env": env.model_copy(update={**source, **given, "kwargs": kwargs})})


def task_of(config: ExperimentConfig) -> str:
    """Name the task of evaluations by 16 hexadecimal digits: returns of different tasks are not comparable.

    A task is the environment (`id`, `make`, `kind`, `kwargs`, `max_episode_steps`), the cut of its episodes
    (`evaluator.max_episode_steps`), their source (True or False: `evaluator.episodes` is 0), and exploration in them
    (`evaluator.deterministic` is false). Secrets are not part of a task.
    """
    plays = config.evaluator.episodes > 0
    env = (evaluated(config) if plays else config).env
    described = env.model_dump(mode="json", include={"id", "make", "kind", "kwargs", "max_episode_steps"})
    task = {"env": masked(described), "cut": config.evaluator.max_episode_steps, "plays": plays}
    if plays and not config.evaluator.deterministic:  # else without this key, as in the names of earlier versions
        task["explores"] = True
    return hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:16]


def stage_named(config: ExperimentConfig, task: str) -> int:
    """Return the first stage of `env.schedule` with evaluations on the task of this name; 0 for the section `env`, and
    for an unknown task."""
    stages = range(len(config.env.schedule) + 1)
    return next((at for at in stages if task_of(on_task(config, kwargs_of_stage(config, at))) == task), 0)


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
    auto = frozenset(key for key in (COLLECTORS, NUM_ENVS, THREADS) if value_at(values, _loc(key)) == AUTO)
    for key in auto:
        before = value_at(file_values, _loc(key))
        section, name = _loc(key)
        inside = cast("dict[str, JsonValue]", values[section])
        rest = {other: value for other, value in inside.items() if other != name}
        values = {**values, section: rest if not isinstance(before, int) else {**inside, name: before}}
    collectors = _loc(COLLECTORS)
    least, count = value_at(values, ("collector", "minimum")), value_at(values, collectors) or CollectorConfig().count
    if COLLECTORS in auto and isinstance(least, int) and isinstance(count, int) and least > count:
        values = with_value(values, collectors, least)
    return values, auto


def with_auto(values: dict[str, JsonValue], auto: Collection[str]) -> dict[str, JsonValue]:
    """Put `auto` back, for people."""
    for key in auto:
        values = with_value(values, _loc(key), AUTO)
    return values


def obstacle_to_auto(config: ExperimentConfig, auto: Collection[str]) -> str | None:
    """Return the reason why these settings cannot be measured for this config, by any command, or None."""
    if config.env.kind == "pettingzoo":
        return "environments with several agents are not measured"
    if THREADS in auto and config.learner.ranks > 1:
        return "learner.threads is for one rank"
    return None


def _loc(key: str) -> tuple[str, str]:
    section, _, name = key.partition(".")
    return section, name
