"""Settings that somebody gave and that have no effect beside the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from remuda.config.changing import schedules_of
from remuda.config.custom import asked, settings_of
from remuda.config.errors import ConfigError
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section

_PRIORITIES = ("buffer.priority_exponent", "buffer.importance_exponent", "buffer.importance_anneal_iters")
_REPLAY = (
    "learner.batch_size",
    "learner.prefetch_batches",
    "learner.publish_interval_iters",
    "buffer.capacity",
    "buffer.min_rows",
    "buffer.prioritized",
    "buffer.samples_per_insert",
    *_PRIORITIES,
)


def unused_settings(config: ExperimentConfig) -> list[str]:
    """A line for each setting that is not the default and that nothing reads, with the reason: someone who has set it
    expects something of it. They are no errors, as a sweep over algorithms gives all of them the same settings; of
    several policies, which share them, none are told. Settings that only some environments need are not among them.

    `config` is as it was loaded. Imports the class of a custom algorithm. Raises ConfigError where that cannot say."""
    if config.policies:
        return []
    settings = settings_of(config)
    sections: dict[str, Section] = {name: inside for name, inside in config if isinstance(inside, Section)}
    sections["policy"] = settings
    lines: list[str] = []
    for why, keys in [*_of_all(config), *asked(config.policy.type, settings.unused_settings).items()]:
        for key in keys:
            section, _, name = key.partition(".")
            inside = sections.get(section)
            if inside is None or name not in type(inside).model_fields:
                at = f"policy.type = {config.policy.type!r}: {type(settings).__name__}.unused_settings"
                raise ConfigError([f"{at}: {key}: no such setting; write section.setting, as in learner.batch_size"])
            value = cast("object", schedules_of(inside).get(name, getattr(inside, name)))
            default = settings.defaults.get(key, type(inside).model_fields[name].get_default(call_default_factory=True))
            if value != default:
                lines.append(f"{key} is {_shown(value)} and has no effect: {why}")
    return lines


def _of_all(config: ExperimentConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Why some settings are not read, and which, whatever the algorithm."""
    policy = config.policy
    if policy.segment_steps is not None:
        yield f"{policy.type} has no replay, and learns from learner.segments_per_update segments at once", _REPLAY
        return
    yield f"{policy.type} learns from a replay", ("learner.segments_per_update", "buffer.max_policy_lag")
    if not config.buffer.prioritized:
        yield "buffer.prioritized is false", _PRIORITIES


def _shown(value: object) -> str:
    return json.dumps(value, default=str)
