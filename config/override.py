"""Settings given on the command line, which beat those of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from remuda.config.document import Loc, UnreadableError
from remuda.config.errors import ConfigError, shortened
from remuda.config.yaml_source import read_yaml_value

_LONGEST_SOURCE = 80


@dataclass(frozen=True)
class Override:
    """One setting; `source` is how it was written, for messages."""

    loc: Loc
    value: JsonValue
    source: str


def parse_override(text: str) -> Override:
    """Read `a.b=value`, the value in YAML (`3`, `1e-3`, `null`, `[64, 64]`, `{a: 1}`). Raises ConfigError."""
    source = f"--set {shortened(text, _LONGEST_SOURCE)}"
    key, equals, value = text.partition("=")
    parts = tuple(part.strip() for part in key.split("."))
    if not equals or not all(parts):
        raise ConfigError([f"{source}: write it as key=value, as in --set learner.batch_size=128"])
    try:
        return Override(parts, read_yaml_value(value), source)
    except UnreadableError as problem:
        raise ConfigError([f"{source}: {problem.text}"]) from None


def apply_overrides(values: dict[str, JsonValue], overrides: Sequence[Override]) -> dict[str, JsonValue]:
    """Return `values` with each override put in, the later the stronger; a section given whole replaces the whole."""
    for override in overrides:
        values = _put(values, override.loc, override.value)
    return values


def _put(values: dict[str, JsonValue], loc: Loc, value: JsonValue) -> dict[str, JsonValue]:
    name, rest = str(loc[0]), loc[1:]
    if rest:
        inner = values.get(name)
        value = _put(inner if isinstance(inner, dict) else {}, rest, value)
    return values | {name: value}
