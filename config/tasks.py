"""The tasks of a run: what its environments are at each of them, and what evaluations are played on."""

from __future__ import annotations

import hashlib
import json
from typing import cast

from pydantic import JsonValue

from remuda.config.schema import ExperimentConfig
from remuda.config.secrets import masked


def on_task(config: ExperimentConfig, kwargs_json: str) -> ExperimentConfig:
    """The settings at a task with these arguments (JSON) in the place of, and beside, those of `env.kwargs`; empty: as
    they are."""
    if not kwargs_json:
        return config
    kwargs = {**config.env.kwargs, **cast("dict[str, JsonValue]", json.loads(kwargs_json))}
    return config.model_copy(update={"env": config.env.model_copy(update={"kwargs": kwargs})})


def kwargs_of_stage(config: ExperimentConfig, stage: int) -> str:
    """The arguments, as JSON, of the stage of `env.schedule` with this number, counted from 1; empty for 0."""
    return json.dumps(config.env.schedule[stage - 1].kwargs) if stage else ""


def without_secrets(kwargs_json: str) -> str:
    """Arguments of a task as copies for people have them."""
    return json.dumps(masked(json.loads(kwargs_json))) if kwargs_json else kwargs_json


def evaluated(config: ExperimentConfig) -> ExperimentConfig:
    """The settings with the environment that evaluations are played on as `env`: see `evaluator.env`."""
    other, env = config.evaluator.env, config.env
    if other is None:
        return config
    same = other.id is None and other.make is None
    given = other.model_dump(exclude_none=True)
    kwargs = {**(env.kwargs if same else {}), **other.kwargs}
    source = {} if same else {"id": None, "make": None, "max_episode_steps": None}
    return config.model_copy(update={"env": env.model_copy(update={**source, **given, "kwargs": kwargs})})


def task_of(config: ExperimentConfig) -> str:
    """Names the task that evaluations measure, by 16 hexadecimal digits: returns of two tasks cannot be compared.

    A task is the environment (`id`, `make`, `kind`, `kwargs`, `max_episode_steps`) and where its episodes are cut and
    come from (`evaluator.max_episode_steps`, and whether `evaluator.episodes` is 0). Secrets are no part of a task."""
    plays = config.evaluator.episodes > 0
    env = (evaluated(config) if plays else config).env
    described = env.model_dump(mode="json", include={"id", "make", "kind", "kwargs", "max_episode_steps"})
    task = {"env": masked(described), "cut": config.evaluator.max_episode_steps, "plays": plays}
    return hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:16]


def stage_named(config: ExperimentConfig, task: str) -> int:
    """The first stage of `env.schedule`, 0 for the section itself, whose evaluations measure the task of this name; 0
    also where there is none."""
    stages = range(len(config.env.schedule) + 1)
    return next((at for at in stages if task_of(on_task(config, kwargs_of_stage(config, at))) == task), 0)
