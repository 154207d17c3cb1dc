"""Explains validation errors, one line per error, and settings without effect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, cast, get_args, get_origin

from pydantic import Tag
from pydantic_core import ErrorDetails

from remuda.config.algorithms.registry import BUILT_IN, CUSTOM, CustomConfig
from remuda.config.custom import ask_class, settings_of
from remuda.config.errors import ConfigError, Document, Loc, dotted, shortened
from remuda.config.learning import BufferConfig, LearnerConfig
from remuda.config.readers import Override
from remuda.config.schema import ExperimentConfig
from remuda.config.section import OnlyFor, ScheduledSection, Section, may_change, schedules_of

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
    if loc[-1:] == ("[key]",):
        loc = loc[:-1]
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


_LONGEST_VALUE = 60
_AFTER_THE_FILE = 1 << 30
_NOT_A_NUMBER = ("int_type", "float_type")


@dataclass(frozen=True)
class ConfigSource:
    """Origin of a config: its file and overrides, for messages."""

    path: Path
    document: Document
    overrides: Sequence[Override]

    def of(self, loc: Loc) -> str:
        """Return the override that gave the setting, or else the file, with the line if present."""
        source = _overriding(loc, self.overrides, known=loc in self.document.lines)
        if source is not None:
            return source
        line = self.document.line_of(loc) or 0
        return f"{self.path}:{line}" if line else str(self.path)


def explain(
    errors: Sequence[ErrorDetails],
    where: ConfigSource,
    *,
    section_of: Callable[[Loc], type[Section] | None] = lambda loc: None,
) -> list[str]:
    """Explain all pydantic errors: first the errors of the file, in the file's order.

    `section_of` returns the section at a place outside the schema: of a custom algorithm, or of another file.
    """
    problems: list[tuple[int, str]] = []
    for details in errors:
        loc, kind = as_written(details["loc"])
        if details["type"] == "union_tag_not_found" and isinstance(details["input"], dict):
            loc = (*loc, "type")
        own = section_of(loc[:-1])
        is_list = details["type"] in _NOT_A_NUMBER and isinstance(details["input"], list | tuple)
        if is_list and (own is None or issubclass(own, ScheduledSection)):
            what = _no_schedule(loc, own or section_at(loc[:-1], kind))
        elif own and details["type"] == "extra_forbidden":
            what = _unknown(loc, tuple(own.model_fields))
        else:
            what = _what(details, loc, kind)
        problem = f"{dotted(loc)}: {what}" if loc else what
        place = where.of(loc)
        if _overriding(loc, where.overrides, known=loc in where.document.lines) is not None:
            problems.append((_AFTER_THE_FILE, f"{place}: {problem}"))
        else:
            line = where.document.line_of(loc) or 0
            problems.append((line, f"{place}: {problem}{_with(loc, where.overrides)}"))
    return [text for _, text in sorted(problems, key=lambda problem: problem[0])]


def _unknown(loc: Loc, known: Sequence[str]) -> str:
    near = get_close_matches(str(loc[-1])[:100], known, n=1)
    if near:
        return f"no such setting; did you mean {dotted((*loc[:-1], near[0]))}?"
    return f"no such setting; valid here: {', '.join(known)}"


def _no_schedule(loc: Loc, section: type[Section] | None) -> str:
    """A list was given where a number is needed."""
    names = may_change(section) if section is not None else ()
    beside = ", ".join(dotted((*loc[:-1], name)) for name in names)
    may = f"of those beside it, {beside} may" if beside else "some under policy and learner may"
    return f"should be a number: it cannot change during a run ({may})"


def _overriding(loc: Loc, overrides: Sequence[Override], *, known: bool) -> str | None:
    """Return the override responsible for `loc`: by value, or by a part of a section missing in the file."""
    for override in reversed(overrides):
        if loc[: len(override.loc)] == override.loc or (loc and not known and override.loc[: len(loc)] == loc):
            return override.source
    return None


def _with(loc: Loc, overrides: Sequence[Override]) -> str:
    """Return the overrides inside a section of the file that is wrong as a whole."""
    inside = [override.source for override in overrides if override.loc[: len(loc)] == loc]
    return f" (with {', '.join(inside)})" if inside else ""


def _what(details: ErrorDetails, loc: Loc, chosen: str | None) -> str:
    """Describe an error. `chosen` is the `type` of the enclosing section, if several types are possible."""
    kind, message = details["type"], details["msg"]
    if kind == "extra_forbidden":
        of = f" of {chosen}" if chosen else ""
        return f"no such setting{of}; {nearest_setting(loc, chosen)}"
    if kind == "union_tag_not_found" and isinstance(details["input"], dict):  # a type that is no text
        given = cast("dict[str, object]", details["input"])["type"]
        return f"should be one of {', '.join(BUILT_IN)}, or module:Class, not {_shown(given)}"
    if kind == "missing":
        return "is required"
    if kind in ("model_type", "model_attributes_type", "union_tag_not_found"):
        return f"should be a mapping of settings, not {_shown(details['input'])}"
    if kind == "int_parsing_size":
        return f"is far too large: {_shown(details['input'])}"
    if kind == "string_pattern_mismatch":
        return f"should match {details.get('ctx', {}).get('pattern')}, not {_shown(details['input'])}"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if message.startswith("Input should be "):
        wanted = message.removeprefix("Input ").replace("a valid tuple", "a list")
        if kind.endswith(("_parsing", "_from_float")):
            wanted = wanted.partition(",")[0]  # the rest says how the parser failed
        return f"{wanted}, not {_shown(details['input'])}"
    return message[0].lower() + message[1:]


def _shown(value: object) -> str:
    """Return a wrong value in the notation of configs, shortened."""
    return shortened(json.dumps(value, ensure_ascii=False, default=str), _LONGEST_VALUE)


_PRIORITIES = ("buffer.priority_exponent", "buffer.importance_exponent", "buffer.importance_anneal_iters")


def unused_settings(config: ExperimentConfig) -> list[str]:
    """Return a line per setting that differs from its default and has no effect, with the reason. These are not errors:
    a sweep over algorithms gives all algorithms the same settings. For several policies, which share sections, returns
    nothing. Ignores settings that only some environments need.

    `config` is unchanged since loading. Imports the class of a custom algorithm. Raises ConfigError if the class fails.
    """
    if config.policies:
        return []
    settings = settings_of(config)
    sections: dict[str, Section] = {name: inside for name, inside in config if isinstance(inside, Section)}
    sections["policy"] = settings
    lines: list[str] = []
    for why, keys in [*_of_all(config), *ask_class(config.policy.type, settings.unused_settings).items()]:
        for key in keys:
            section, _, name = key.partition(".")
            inside = sections.get(section)
            if inside is None or name not in type(inside).model_fields:
                at = f"policy.type = {config.policy.type!r}: {type(settings).__name__}.unused_settings"
                raise ConfigError([f"{at}: {key}: no such setting; write section.setting, as in learner.batch_size"])
            value = cast("object", schedules_of(inside).get(name, getattr(inside, name)))
            default = settings.defaults.get(key, type(inside).model_fields[name].get_default(call_default_factory=True))
            if value != default:
                lines.append(f"{key} is {json.dumps(value, default=str)} and has no effect: {why}")
    return lines


def _of_all(config: ExperimentConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield unused settings of any algorithm, by the reason."""
    policy = config.policy
    if policy.segment_steps is not None:
        yield (
            f"{policy.type} has no replay, and learns from learner.segments_per_update segments at once",
            _only_for("replay"),
        )
        return
    yield f"{policy.type} learns from a replay", _only_for("once")
    if not config.buffer.prioritized:
        yield "buffer.prioritized is false", _PRIORITIES


def _only_for(reuse: Literal["replay", "once"]) -> tuple[str, ...]:
    """Return the settings outside `policy` that only algorithms with this use of rows read."""
    sections: dict[str, type[Section]] = {"learner": LearnerConfig, "buffer": BufferConfig}
    fields = ((section, name, field) for section, kind in sections.items() for name, field in kind.model_fields.items())
    return tuple(f"{section}.{name}" for section, name, field in fields if OnlyFor(reuse) in field.metadata)
