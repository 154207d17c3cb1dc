"""Explains validation errors, one line per error, and settings without effect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, cast

from pydantic_core import ErrorDetails

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.custom import ask_class, settings_of
from remuda.config.document import Document, Loc, dotted
from remuda.config.errors import ConfigError, shortened
from remuda.config.learning import BufferConfig, LearnerConfig
from remuda.config.readers import Override
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section, may_change, only_for, schedules_of
from remuda.config.suggest import as_written, nearest_setting, section_at

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


def explain(errors: Sequence[ErrorDetails], where: ConfigSource, *, own: type[Section] | None = None) -> list[str]:
    """Explain all pydantic errors: first the errors of the file, in the file's order.

    `own` is the settings class of a custom algorithm, if the errors belong to its section.
    """
    problems: list[tuple[int, str]] = []
    for details in errors:
        loc, kind = as_written(details["loc"])
        if details["type"] == "union_tag_not_found" and isinstance(details["input"], dict):
            loc = (*loc, "type")
        if details["type"] in _NOT_A_NUMBER and isinstance(details["input"], list | tuple):
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
                lines.append(f"{key} is {_as_json(value)} and has no effect: {why}")
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
    return tuple(f"{section}.{name}" for section, kind in sections.items() for name in only_for(kind, reuse))


def _as_json(value: object) -> str:
    return json.dumps(value, default=str)
