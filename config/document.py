"""A parsed config file before validation: plain values, and the lines of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

Loc = tuple[str | int, ...]
"""Location in a config: ("policy", "hidden", 1). The empty tuple is the whole config."""

MAX_BYTES = 256 * 1024
"""Size limit, which bounds the time for a bad file. No config is near this size (a message holds
200 000 characters)."""
MAX_VALUES = 20_000
"""Limit for values in one file, including sections and list items."""
MAX_DEPTH = 32
"""Limit for nested sections and lists; the schema needs 2 levels, the environment's kwargs the rest."""


@dataclass(frozen=True)
class Document:
    """A parsed file. `lines` has the line of every key (not of every list item); the first line is 1."""

    values: dict[str, JsonValue]
    lines: dict[Loc, int]

    def line_of(self, loc: Loc) -> int | None:
        """Return the line of `loc`, or of the nearest enclosing section in the file; None if the file has neither."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc)


class UnreadableError(Exception):
    """The file does not have the format of its suffix; `line` is None if no single line is wrong."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


def value_at(values: JsonValue, loc: Loc) -> JsonValue:
    """Return the value at `loc`, or None."""
    for part in loc:
        values = values.get(str(part)) if isinstance(values, dict) else None
    return values


def has_value(values: JsonValue, loc: Loc) -> bool:
    """True if settings have a value at `loc`, even null."""
    inside = value_at(values, loc[:-1])
    return isinstance(inside, dict) and str(loc[-1]) in inside


def dotted(loc: Loc) -> str:
    """Return `loc` as people write it: `policy.hidden[1]`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def require_mapping(value: JsonValue) -> dict[str, JsonValue]:
    """Check that the value of a whole file is a mapping."""
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
