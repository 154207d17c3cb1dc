"""Puts numbers in the places of settings that are `auto`: measured ones, or those that the run began with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from remuda.client.resuming import with_former_defaults
from remuda.config.auto import COLLECTORS, NUM_ENVS, SEGMENTS
from remuda.config.changes import former_settings
from remuda.config.launching import LOCAL
from remuda.config.load import LoadedConfig, Origin, load_settings

if TYPE_CHECKING:  # it imports gymnasium
    from remuda.deploy.sizing import Answer, SizeRequest


def as_before(loaded: LoadedConfig, run_dir: Path) -> LoadedConfig:
    """The config of a run that is resumed: what nobody gives, and settings that are auto, keep what its config.json has
    for them. Raises ConfigError."""
    loaded = with_former_defaults(loaded, run_dir)
    if not loaded.auto:
        return loaded
    former = former_settings(run_dir)
    numbers = {key: former[key] for key in _settled(loaded) if key in former}
    kept = ", ".join(f"{key} {json.dumps(numbers[key])}" for key in sorted(loaded.auto & numbers.keys()))
    return with_numbers(loaded, numbers, [f"auto: {kept}, as when the run began"] if kept else [])


def request_of(loaded: LoadedConfig, *, serial: bool) -> SizeRequest | None:
    """What is to be measured for this config; None if it has numbers only.

    Raises ConfigError where the processes of the run will not be on this machine."""
    if not loaded.auto:
        return None
    if not serial and loaded.config.launch.on != LOCAL:
        loaded.require_numbers(f"numbers are measured on this machine, and launch.on is {loaded.config.launch.on}")
    from remuda.deploy.sizes import Asked
    from remuda.deploy.sizing import SizeRequest
    from remuda.policy.row_plan import row_plan

    config, auto, plan = loaded.config, loaded.auto, row_plan(loaded.config)
    asked = Asked(
        collectors=None if COLLECTORS in auto else config.collector.count,
        num_envs=None if NUM_ENVS in auto else config.env.num_envs,
        least_collectors=config.collector.minimum,
        segments=plan.rows_per_update if plan.on_policy else None,
        serial=serial,
        takes_turns=plan.on_policy and config.buffer.max_policy_lag == 0,
        coupled=not config.learner.inference and (plan.on_policy or config.buffer.samples_per_insert is not None),
        in_processes=config.env.vectorization in ("auto", "async"),
    )
    return SizeRequest(config, asked, auto)


def settled(loaded: LoadedConfig, request: SizeRequest, answer: Answer) -> LoadedConfig:
    """The config with the numbers that were measured, and with lines about them for the run's log in its `notes`.

    Raises ConfigError where they do not go with other settings."""
    numbers: dict[str, JsonValue] = {**answer.numbers(request)}
    if numbers and SEGMENTS in _settled(loaded):
        numbers[SEGMENTS] = request.asked.segments
    return with_numbers(loaded, numbers, answer.lines(request))


def with_numbers(loaded: LoadedConfig, numbers: Mapping[str, JsonValue], notes: Sequence[str]) -> LoadedConfig:
    """The config with these settings (dotted keys), nothing else of which is to be measured. Raises ConfigError."""
    config = loaded.config
    for key, number in numbers.items():
        section, name = key.split(".")
        changed = getattr(config, section).model_copy(update={name: number})
        config = config.model_copy(update={section: changed})
    config = load_settings(config, folder=loaded.path.parent).config
    origin: Origin = "measured"
    provenance = {**loaded.provenance, **{key: origin for key in numbers if numbers[key] is not None}}
    return replace(loaded, config=config, provenance=provenance, auto=frozenset(), notes=(*loaded.notes, *notes))


def _settled(loaded: LoadedConfig) -> frozenset[str]:
    """The settings that get numbers: those that are auto, and how much an update learns from if that follows them."""
    follows = loaded.config.learner.segments_per_update is None and {COLLECTORS, NUM_ENVS} & loaded.auto
    return loaded.auto | {SEGMENTS} if follows else loaded.auto
