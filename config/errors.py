"""Errors raised on purpose, `sys.exit` in user code as such an error, and places in config files."""

from __future__ import annotations

import signal
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # many processes that need errors do without pydantic
    from pydantic import JsonValue

_LONGEST_PROBLEM = 500


class Error(Exception):
    """Base of every error raised on purpose by Remuda's Python interface: `except remuda.Error` catches all of them."""


class ConfigError(Error):
    """The config is wrong. The text has a line per problem: place, key, problem, nearest valid key."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(_one_line(problem) for problem in problems)
        super().__init__("\n".join(self.problems))


def _one_line(problem: str) -> str:
    """Fit for a terminal: a config may hold control characters and endless words."""
    shown = shortened(problem, _LONGEST_PROBLEM)
    return "".join(character if character.isprintable() else "�" for character in shown)


def shortened(text: str, longest: int) -> str:
    """`text` in at most `longest` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def counted(count: int, one: str, several: str = "") -> str:
    """Return `1 core` or `2 cores`; `several` is the plural of other words."""
    return f"{count} {one if count == 1 else several or one + 's'}"


_PYTHON = (sysconfig.get_path("stdlib"), "<frozen importlib.")


class UserExitError(Error, RuntimeError):
    """User code tried to end the process; the message names the place."""


class NoExit:
    """Context for user code: SystemExit and KeyboardInterrupt become UserExitError.

    Leaves KeyboardInterrupt unchanged if Python's own signal handler is active, because Ctrl-C may be the cause.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, SystemExit | KeyboardInterrupt):
            return
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            return
        raise UserExitError(
            f"{error!r} was raised{place(trace)}: user code must not end the process that it runs in"
        ) from error


def place(trace: TracebackType | None) -> str:
    """Return the last line of code outside Python's own libraries; empty if there is none."""
    for frame in reversed(traceback.extract_tb(trace)):
        if "-packages" in frame.filename or not frame.filename.startswith(_PYTHON):
            return f" in {frame.filename}, line {frame.lineno}, in {frame.name}"
    return ""


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


def with_value(values: dict[str, JsonValue], loc: Loc, value: JsonValue) -> dict[str, JsonValue]:
    """Return settings with another value at `loc`; a missing section is made."""
    name, rest = str(loc[0]), loc[1:]
    if rest:
        inner = values.get(name)
        value = with_value(inner if isinstance(inner, dict) else {}, rest, value)
    return {**values, name: value}


def without_value(values: dict[str, JsonValue], loc: Loc) -> dict[str, JsonValue]:
    """Return settings without a value at `loc`; of a list, without the whole list."""
    first, rest = str(loc[0]), loc[1:]
    inner = values.get(first)
    if rest and isinstance(inner, dict):
        return {**values, first: without_value(inner, rest)}
    return {name: value for name, value in values.items() if name != first}


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
