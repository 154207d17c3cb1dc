"""From the schema's errors to one line each: where it stands, which key, what is wrong, what was meant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import cast

from pydantic_core import ErrorDetails

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.changing import may_change
from remuda.config.document import Document, Loc, dotted
from remuda.config.errors import shortened
from remuda.config.override import Override
from remuda.config.section import Section
from remuda.config.suggest import as_written, nearest_setting, section_at

_LONGEST_VALUE = 60
_AFTER_THE_FILE = 1 << 30
_NOT_A_NUMBER = ("int_type", "float_type")


@dataclass(frozen=True)
class Where:
    """What a config was made from, for messages that name the place."""

    path: Path
    document: Document
    overrides: Sequence[Override]

    def of(self, loc: Loc) -> str:
        """The override that gave the setting, else the file, with the line if it is there."""
        source = _overriding(loc, self.overrides, known=loc in self.document.lines)
        if source is not None:
            return source
        line = self.document.line_of(loc) or 0
        return f"{self.path}:{line}" if line else str(self.path)


def explain(errors: Sequence[ErrorDetails], where: Where, *, own: type[Section] | None = None) -> list[str]:
    """Every one of pydantic's errors, those of the file first and in the file's order.

    `own` is the class of a custom algorithm's settings, where the errors are those of its section.
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
    return f"should be a number: it cannot change while a run goes on ({may})"


def _overriding(loc: Loc, overrides: Sequence[Override], *, known: bool) -> str | None:
    """The override to blame for `loc`: it gave the value, or a part of a section that the file does not have."""
    for override in reversed(overrides):
        if loc[: len(override.loc)] == override.loc or (loc and not known and override.loc[: len(loc)] == loc):
            return override.source
    return None


def _with(loc: Loc, overrides: Sequence[Override]) -> str:
    """The overrides inside a section of the file that is wrong as a whole."""
    inside = [override.source for override in overrides if override.loc[: len(loc)] == loc]
    return f" (with {', '.join(inside)})" if inside else ""


def _what(details: ErrorDetails, loc: Loc, chosen: str | None) -> str:
    """`chosen` is the `type` of the section around, where it could have been another."""
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
    """A wrong value as a config would write it, shortened."""
    return shortened(json.dumps(value, ensure_ascii=False, default=str), _LONGEST_VALUE)
