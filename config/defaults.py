"""Values for settings that a config leaves out: from the algorithm, and for several policies from the whole config.

Algorithms state defaults for sections outside `policy` (AlgorithmConfig.defaults), by `policy.type` alone. Defaults
that depend on the environment (images, kinds of actions) are in AlgorithmConfig.settings_for, for
remuda.client.beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from remuda.config.algorithms.base import AlgorithmConfig
from remuda.config.algorithms.registry import BUILT_IN, DEFAULT
from remuda.config.learning import OPTIMIZER, OPTIMIZER_SETTINGS, USUAL_OPTIMIZER
from remuda.config.section import Section

SECTIONS = ("policy", "learner", "buffer")
"""Sections of a policy among several policies."""
OFFLINE: Mapping[str, JsonValue] = MappingProxyType(
    {"buffer.samples_per_insert": None, "buffer.min_rows": 1, "collector.count": 1, "collector.minimum": 1}
)
"""Settings of a run with `collector.dataset`, in place of those given: nothing is collected that learning could wait
for."""
OF_EACH_POLICY = frozenset({"learner", "buffer"})
"""Sections outside `policy` that several policies have separately. All remaining sections are shared, and have the
defaults of the whole config's `policy`."""


def defaults_of(policy: object) -> Mapping[str, JsonValue]:
    """Return the defaults of the algorithm in a section `policy`, by dotted key, for a built-in algorithm or a given
    class.

    Empty for invalid sections, and for classes that are not imported yet.
    """
    if isinstance(policy, AlgorithmConfig):
        return policy.defaults
    if policy is None:
        return DEFAULT.defaults
    if not isinstance(policy, Mapping):
        return {}
    kind = cast("Mapping[str, object]", policy).get("type", DEFAULT.type)
    return BUILT_IN[kind].settings.defaults if isinstance(kind, str) and kind in BUILT_IN else {}


def with_defaults(value: object) -> object:
    """Fill in the algorithm's defaults for settings omitted by a config or by one of several policies, after renaming
    settings of former versions.

    Leaves values other than mappings unchanged: an object is a complete section, and the validation refuses the rest.
    """
    if not isinstance(value, Mapping):
        return value
    values = filled(_of_today(cast("Mapping[str, object]", value)))
    policies = values.get("policies")
    if isinstance(policies, Mapping):
        named = cast("Mapping[str, object]", policies)
        values["policies"] = {name: _filled_policy(one) for name, one in named.items()}
    return values


def as_offline(value: object) -> object:
    """Return the settings with those of OFFLINE, if they name a `collector.dataset`."""
    if not isinstance(value, Mapping):
        return value
    values = dict(cast("Mapping[str, object]", value))
    collector = values.get("collector")
    if not isinstance(collector, Mapping) or cast("Mapping[str, object]", collector).get("dataset") is None:
        return values
    for key, setting in OFFLINE.items():
        section, _, name = key.partition(".")
        inside = values.get(section, {})
        if isinstance(inside, Mapping):
            values[section] = {**cast("Mapping[str, object]", inside), name: setting}
    return values


def filled(values: Mapping[str, object], defaults: Mapping[str, JsonValue] | None = None) -> dict[str, object]:
    """Return the settings of a config with defaults for omitted settings; by default the defaults of its algorithm."""
    found = dict(values)
    defaults = defaults_of(values.get("policy")) if defaults is None else defaults
    for key, default in defaults.items():
        section, _, name = key.partition(".")
        inside = found.get(section, {})
        if isinstance(inside, Mapping) and name not in inside and not _chosen_otherwise(key, found, defaults):
            found[section] = {**cast("Mapping[str, object]", inside), name: default}
    return found


def _chosen_otherwise(key: str, values: Mapping[str, object], defaults: Mapping[str, JsonValue]) -> bool:
    """True if this default belongs to a different optimizer than the config's optimizer."""
    if key != OPTIMIZER_SETTINGS:
        return False
    section, _, name = OPTIMIZER.partition(".")
    usual = defaults.get(OPTIMIZER, USUAL_OPTIMIZER)
    return cast("Mapping[str, object]", values.get(section, {})).get(name, usual) != usual


def _filled_policy(one: object) -> object:
    if not isinstance(one, Mapping):
        return one
    values = _of_today(cast("Mapping[str, object]", one))
    return filled(values, of_each_policy(defaults_of(values.get("policy"))))


def _of_today(values: Mapping[str, object]) -> Mapping[str, object]:
    policy = values.get("policy")
    if not isinstance(policy, Mapping):
        return values
    section = cast("Mapping[str, object]", policy)
    kind = section.get("type", DEFAULT.type)
    if not isinstance(kind, str) or kind not in BUILT_IN:
        return values
    settings = BUILT_IN[kind].settings
    stored = settings.as_stored(section)
    return settings.with_current_names(values if stored is section else {**values, "policy": stored})


def of_each_policy(defaults: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the defaults for sections that several policies have separately."""
    return {key: value for key, value in defaults.items() if key.partition(".")[0] in OF_EACH_POLICY}


def wrong_default(kind: type[AlgorithmConfig], sections: Mapping[str, type[Section]]) -> str | None:
    """Return the problem with the defaults of a user's class, or None if the defaults fit `sections`."""
    for key, value in kind.defaults.items():
        section, _, name = key.partition(".")
        inside = sections.get(section)
        if inside is None or name not in inside.model_fields:
            return f"{key}: no such setting outside policy; write section.setting, as in learner.batch_size"
        try:
            TypeAdapter(inside.model_fields[name].rebuild_annotation()).validate_python(value)
        except ValidationError as error:
            return f"{key}: {error.errors(include_url=False)[0]['msg']}"
    return None


def with_sections_above(value: object) -> object:
    """Complete the sections of several policies from the whole config, so that a policy names only differences. A
    policy of another `type` takes nothing from the whole config. Leaves values other than mappings to the validation.
    """
    if not isinstance(value, Mapping):
        return value
    values = dict(cast("Mapping[str, object]", value))
    policies = values.get("policies")
    if isinstance(policies, Mapping):
        named = cast("Mapping[object, object]", policies)
        values["policies"] = {name: _filled_from_above(one, values) for name, one in named.items()}
    return values


def without_repeated(values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Reverse `with_sections_above`: reduce several policies to differences from the whole config, so that a change
    there reaches all policies. A policy of another `type` stays complete."""
    policies = values.get("policies")
    if not isinstance(policies, dict):
        return dict(values)
    named: dict[str, JsonValue] = {name: _differing(one, values) for name, one in policies.items()}
    return {**values, "policies": named}


def _differing(one: JsonValue, above: Mapping[str, JsonValue]) -> JsonValue:
    if not isinstance(one, dict):
        return one
    own = dict(one)
    for section in SECTIONS:
        outer, inner = above.get(section), own.get(section)
        if not isinstance(outer, dict) or not isinstance(inner, dict):
            continue
        if section == "policy" and inner.get("type") != outer.get("type"):
            continue
        own[section] = {name: value for name, value in inner.items() if name not in outer or outer[name] != value}
        if not own[section]:
            del own[section]
    return own


def _filled_from_above(one: object, above: Mapping[str, object]) -> object:
    if not isinstance(one, Mapping):
        return one
    own = dict(cast("Mapping[str, object]", one))
    for section in SECTIONS:
        outer, inner = _plain(above.get(section, {})), _plain(own.get(section, {}))
        if isinstance(outer, dict) and isinstance(inner, dict):
            inner = _merged(section, cast("dict[str, object]", outer), cast("dict[str, object]", inner))
        own[section] = inner
    return own


def _merged(section: str, outer: dict[str, object], inner: dict[str, object]) -> dict[str, object]:
    if section != "policy":
        return {**outer, **inner}
    kind = outer.get("type", DEFAULT.type)
    return {"type": kind, **outer, **inner} if inner.get("type", kind) == kind else inner


def _plain(value: object) -> object:
    return value.model_dump(mode="json") if isinstance(value, Section) else value
