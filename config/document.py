"""A parsed config file before validation: plain values, and the line of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

Loc = tuple[str | int, ...]
"""Where in a config: ("policy", "hidden", 1). The empty tuple is the whole."""

MAX_BYTES = 256 * 1024
"""No config is near this size (a message of the wire holds 200 000 characters); it bounds the time a bad file takes."""
MAX_VALUES = 20_000
"""Values in one file, sections and list items included."""
MAX_DEPTH = 32
"""Sections and lists inside each other; the schema needs 2, the environment's own kwargs the rest."""


@dataclass(frozen=True)
class Document:
    """One parsed file. `lines` knows every key (not every list item); the first line is 1."""

    values: dict[str, JsonValue]
    lines: dict[Loc, int]

    def line_of(self, loc: Loc) -> int | None:
        """The line of `loc`, or of the nearest section around it that the file has; None where there is none."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc)


class UnreadableError(Exception):
    """A file that cannot be read as what its name says; `line` is None where no single line is at fault."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


def value_at(values: JsonValue, loc: Loc) -> JsonValue:
    """The value at `loc` of settings; None where there is none."""
    for part in loc:
        values = values.get(str(part)) if isinstance(values, dict) else None
    return values


def has_value(values: JsonValue, loc: Loc) -> bool:
    """Whether settings have a value at `loc`; None counts as one."""
    inside = value_at(values, loc[:-1])
    return isinstance(inside, dict) and str(loc[-1]) in inside


def dotted(loc: Loc) -> str:
    """`policy.hidden[1]`, as people write it."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def require_mapping(value: JsonValue) -> dict[str, JsonValue]:
    """The whole file's value, which must be a mapping."""
    if value is None:
        raise UnreadableError("the file is empty; a config needs at least `name` and `env`")
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise UnreadableError(f"the file holds {kind} where a mapping of settings is needed (name: …, env: …)", 1)
    return value


def flat(settings: Mapping[str, JsonValue], prefix: str = "") -> dict[str, JsonValue]:
    """The settings by dotted key; an empty section is a value."""
    found: dict[str, JsonValue] = {}
    for key, value in settings.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict) and value:
            found |= flat(value, name)
        else:
            found[name] = value
    return found
