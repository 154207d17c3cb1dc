"""The tree of settings, and suggestions for unknown settings."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, cast, get_args, get_origin

from pydantic import Tag

from remuda.config.algorithms.custom import CUSTOM, CustomConfig
from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.document import Loc, dotted
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section

_OTHER_NAMES = {
    "lr": ("learner.learning_rate",),
    "gamma": ("policy.discount",),
    "replay_size": ("buffer.capacity",),
    "env_id": ("env.id",),
    "algorithm": ("policy.type",),
    "n_steps": ("policy.n_step", "policy.horizon_steps"),
    "max_steps": ("stop.max_env_steps",),
    "clip_range": ("policy.clip",),
    "n_epochs": ("policy.epochs",),
    "ent_coef": ("policy.entropy_coefficient",),
    "vf_coef": ("policy.value_coefficient",),
    "weight_decay": ("learner.optimizer_settings",),
    "anneal_env_steps": ("learner.learning_rate",),
}
"""Names of settings in other libraries; the first setting that the algorithm has is suggested."""
_OF_SEGMENTS = {"learner.batch_size": "learner.segments_per_update"}
"""Settings for algorithms that learn from segments, in place of settings for replay."""


def section_at(loc: Loc, kind: str | None = None) -> type[Section] | None:
    """Return the section of the schema at `loc`, or None for values and unknown places.

    `kind` is the `type` of a section with several choices (policy); the default is the first choice.
    """
    section: type[Section] = ExperimentConfig
    named: type[Section] | None = None
    for part in loc:
        if named is not None:  # the part is a name that the user has chosen
            section, named = named, None
            continue
        named = _of_each_name(section, part)
        choices = {} if named else _choices(section, part)
        if named is None and not choices:
            return None
        if choices:
            section = choices.get(kind or "") or (choices.get(CUSTOM) if kind else None) or next(iter(choices.values()))
    return section if named is None else None


def _of_each_name(section: type[Section], part: str | int) -> type[Section] | None:
    """Return the section type of the values, for a setting that maps names to sections (policies)."""
    field = section.model_fields.get(str(part))
    annotation = field.annotation if field else None
    if get_origin(annotation) is not dict:
        return None
    inner = get_args(annotation)[1]
    return inner if isinstance(inner, type) and issubclass(inner, Section) else None


def kinds_at(loc: Loc) -> tuple[str, ...]:
    """Return the values of `type` that select the section at `loc`; empty without a choice."""
    section = section_at(loc[:-1])
    return tuple(_choices(section, loc[-1])) if loc and section and len(_choices(section, loc[-1])) > 1 else ()


def as_written(loc: Loc) -> tuple[Loc, str | None]:
    """Return the place of a validation error in the file, and the selected `type`: pydantic inserts the type into its
    location."""
    for length in range(1, len(loc)):
        if loc[length] in kinds_at(loc[:length]):
            return loc[:length] + loc[length + 1 :], str(loc[length])
    return loc, None


def _choices(section: type[Section], name: str | int) -> dict[str, type[Section]]:
    """Return the possible sections of a setting, by `type`; empty for values, and for a section that may be a word
    instead (affinity)."""
    field = section.model_fields.get(str(name))
    annotation = field.annotation if field else None
    members: tuple[object, ...] = get_args(annotation) or (annotation,)
    sections = {tag: inner for tag, inner in map(_tagged, members) if issubclass(inner, Section)}
    return sections if len(sections) == len(members) else {}


def _tagged(member: object) -> tuple[str, type]:
    """Return a member of a union with its tag; the tag is empty if missing."""
    if get_origin(member) is Annotated:
        inner, *metadata = get_args(member)
        return next(one.tag for one in metadata if isinstance(one, Tag)), cast("type", inner)
    return "", member if isinstance(member, type) else type(None)


@cache
def all_keys(kind: str | None = None) -> dict[str, Loc]:
    """Return all settings with values, by dotted key, in the schema's order, for the policy type `kind`."""
    return {dotted(loc): loc for loc in _leaves((), kind)}


def keys_of(config: ExperimentConfig) -> dict[str, Loc]:
    """Return all settings of this config, as `all_keys`, including settings of a custom algorithm's class."""
    policy = config.policy
    settings = policy.settings if isinstance(policy, CustomConfig) else {}
    return all_keys(policy.type) | {f"policy.{name}": ("policy", name) for name in settings}


def _leaves(loc: Loc, kind: str | None) -> list[Loc]:
    section = section_at(loc, kind)
    if section is None:
        return [loc]
    return [leaf for name in section.model_fields for leaf in _leaves((*loc, name), kind)]


def nearest_setting(loc: Loc, kind: str | None = None) -> str:
    """Return a hint for the unknown key `loc`: the most similar setting, or all valid settings of the section.

    Suggests only settings of the algorithm `kind`, or of any algorithm if unknown.
    """
    section = section_at(loc[:-1], kind)
    if section is None:
        return ""
    name = str(loc[-1])
    keys = all_keys(kind)
    if kind is None:
        keys = keys | {key: at for each in kinds_at(("policy",)) for key, at in all_keys(each).items()}
    valid = f"valid here: {', '.join(section.model_fields)}"
    having = _having(loc, kind)
    if having:
        return f"{valid}; {dotted((*loc[:-1], 'type'))} {' or '.join(having)} has it"
    nearest = (
        next((key for key in _OTHER_NAMES.get(name, ()) if key in keys), None)
        or _nearest_beside(name, loc[:-1], section)
        or _nearest_elsewhere(name, keys)
    )
    if nearest:
        return f"did you mean {_OF_SEGMENTS.get(nearest, nearest) if _has_segments(kind) else nearest}?"
    return valid


def _has_segments(kind: str | None) -> bool:
    built_in = BUILT_IN.get(kind or "")
    return built_in is not None and built_in.settings.model_validate({}).segment_steps is not None


def _having(loc: Loc, kind: str | None) -> list[str]:
    """Return types whose section at this place has a setting of exactly this name; empty if `kind` has such a setting
    elsewhere."""
    name = str(loc[-1])
    if kind is None or name in _OTHER_NAMES or any(at[-1] == name for at in all_keys(kind).values()):
        return []
    sections = {other: section_at(loc[:-1], other) for other in kinds_at(loc[:-1])}
    return [other for other, section in sections.items() if section is not None and name in section.model_fields]


def _nearest_beside(name: str, parent: Loc, section: type[Section]) -> str | None:
    close = get_close_matches(name[:100].lower(), section.model_fields, n=1)
    return dotted((*parent, close[0])) if close else None


def _nearest_elsewhere(name: str, keys: Mapping[str, Loc]) -> str | None:
    by_name = {str(loc[-1]): key for key, loc in reversed(list(keys.items()))}
    close = get_close_matches(name[:100].lower(), by_name, n=1, cutoff=0.8)
    return by_name[close[0]] if close else None
