"""A resumed run keeps the values that it took from defaults, though the defaults of this version may be others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from remuda.config.algorithms.policy import PolicyConfig
from remuda.config.document import Loc, dotted, has_value, value_at
from remuda.config.errors import ConfigError
from remuda.config.load import LoadedConfig, Origin, load_config, load_settings
from remuda.config.override import Override, apply_overrides
from remuda.config.schema import ExperimentConfig
from remuda.config.several_policies import SECTIONS
from remuda.config.sources import recorded
from remuda.config.suggest import all_keys, keys_of
from remuda.storage.run_folder import RunFolder

_FILLED_IN = frozenset({"source_dir", "env.agents", "policy.declaration", "policies"})
"""Settings that are no defaults where nobody gives them."""


def with_former_defaults(loaded: LoadedConfig, run_dir: Path) -> LoadedConfig:
    """The config of a run that is resumed: a setting that was a default when the run began, and that nobody gives now,
    keeps its value. Raises ConfigError where such a value does not go with a setting that is given now."""
    former = _former(run_dir)
    if former is None or not _same_algorithm(former.policy, loaded.config.policy):
        return loaded
    before: dict[str, JsonValue] = former.model_dump(mode="json")
    now: dict[str, JsonValue] = loaded.config.model_dump(mode="json")
    origins = _origins(run_dir)
    kept: dict[Loc, JsonValue] = {}
    for loc in _not_given(loaded, former, origins):
        if has_value(before, loc) and value_at(before, loc) != value_at(now, loc):
            kept[loc] = value_at(before, loc)
    if not kept:
        return loaded
    told = (f"{dotted(loc)} {json.dumps(value)} (now {json.dumps(value_at(now, loc))})" for loc, value in kept.items())
    settings = apply_overrides(now, [Override(loc, value, "config.json") for loc, value in kept.items()])
    config = load_settings(cast("Mapping[str, object]", settings), folder=loaded.path.parent).config
    as_recorded = {dotted(loc): origins.get(dotted(loc), "default") for loc in kept if loc[0] != "policies"}
    notes = (*loaded.notes, f"defaults as when the run began: {', '.join(told)}")
    return replace(loaded, config=config, provenance={**loaded.provenance, **as_recorded}, notes=notes)


def _former(run_dir: Path) -> ExperimentConfig | None:
    try:
        return load_config(RunFolder(run_dir).config_json, import_algorithm=False).config
    except ConfigError:  # there is none, or resuming is refused later, with the reason
        return None


def _origins(run_dir: Path) -> Mapping[str, Origin]:
    try:
        return recorded(run_dir).provenance
    except ConfigError:  # then all settings count as defaults
        return {}


def _not_given(loaded: LoadedConfig, former: ExperimentConfig, origins: Mapping[str, Origin]) -> Iterator[Loc]:
    """Settings that nobody gives now and that were defaults before. For several policies that is not recorded."""
    given = dict(loaded.given)
    for key, loc in keys_of(loaded.config).items():
        was_default = origins.get(key, "default") in ("algorithm", "default")
        if was_default and key not in _FILLED_IN | loaded.auto and not has_value(given, loc):
            yield loc
    for name, one in loaded.config.policies.items():
        if name not in former.policies or not _same_algorithm(former.policies[name].policy, one.policy):
            continue
        for key, loc in all_keys(one.policy.type).items():
            shared = loc[0] != "policy" or _same_algorithm(one.policy, loaded.config.policy)
            if loc[0] in SECTIONS and key not in _FILLED_IN and not (shared and has_value(given, loc)):
                here = ("policies", name, *loc)
                if not has_value(given, here):
                    yield here


def _same_algorithm(first: PolicyConfig, second: PolicyConfig) -> bool:
    return first.type == second.type
