"""Reading YAML: the core of YAML 1.2, without tags, anchors and aliases.

PyYAML splits the text into events; the values are built here. So a tag can construct nothing, an alias can multiply
nothing, `1e-3` is a number, and `no` and `on` are words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

import yaml
from pydantic import JsonValue

from remuda.config.document import MAX_DEPTH, MAX_VALUES, Document, Loc, UnreadableError, dotted, require_mapping

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(inf|Inf|INF|nan|NaN|NAN)")


def read_yaml(text: str) -> Document:
    """Parse a whole file. Raises UnreadableError."""
    reader = _Reader(text)
    return Document(require_mapping(reader.document()), reader.lines)


def read_yaml_value(text: str) -> JsonValue:
    """Parse one value, as after `--set key=`. Raises UnreadableError."""
    return _Reader(text).document()


class _Reader:
    """Recursive descent over PyYAML's events; the depth is bounded, so Python's stack is safe."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Loc, int] = {}
        self._events = _events(text)
        self._values = 0

    def document(self) -> JsonValue:
        value: JsonValue = None
        started = False
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if started:
                    raise UnreadableError("a second document starts here; a config is one", _line(event))
                started = True
            elif isinstance(event, yaml.NodeEvent):
                value = self._value(event, ())
        return value

    def _value(self, event: yaml.NodeEvent, loc: Loc) -> JsonValue:
        self._bound(event, loc)
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(loc)
        return self._sequence(loc)

    def _mapping(self, loc: Loc) -> JsonValue:
        mapping: dict[str, JsonValue] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise UnreadableError("a key must be a plain word", _line(event))
            self._bound(event, loc)
            key = _text(event)
            if key in mapping:
                first = self.lines[(*loc, key)]
                raise UnreadableError(f"{dotted((*loc, key))}: given twice (first on line {first})", _line(event))
            self.lines[(*loc, key)] = _line(event)
            mapping[key] = self._value(cast(yaml.NodeEvent, next(self._events)), (*loc, key))
        return mapping

    def _sequence(self, loc: Loc) -> JsonValue:
        items: list[JsonValue] = []
        for event in self._until(yaml.SequenceEndEvent):
            items.append(self._value(event, (*loc, len(items))))
        return items

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.NodeEvent]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield cast(yaml.NodeEvent, event)  # inside a collection every other event begins a node

    def _bound(self, event: yaml.NodeEvent, loc: Loc) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise UnreadableError(f"more than {MAX_VALUES} values", _line(event))
        if len(loc) > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels", _line(event))
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise UnreadableError(
                f"{sign}{event.anchor}: anchors and aliases are not accepted; write it out", _line(event)
            )
        if getattr(event, "tag", None) is not None:
            raise UnreadableError("a tag (!…) is not accepted; write the plain value", _line(event))


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        parts = [part for part in (error.context, error.problem) if part]
        raise UnreadableError(
            f"not valid YAML: {', '.join(parts)}", mark.line + 1 if mark is not None else None
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableError(f"not text: character #x{ord(text[error.position]):04x}", line) from None


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # PyYAML's scanner marks every event
    return event.start_mark.line + 1


def _scalar(event: yaml.ScalarEvent) -> JsonValue:
    text = _text(event)
    if not event.implicit[0]:  # quoted, or a block: always a string
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    try:
        return _number(text)
    except ValueError:
        raise UnreadableError("a number of thousands of digits", _line(event)) from None


def _number(text: str) -> int | float | str:
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if match := _SPECIAL_FLOAT.fullmatch(text):
        return float(match[1] + match[2])
    return text


def _text(event: yaml.ScalarEvent) -> str:
    """The scalar's text. JSON writes 😀 as two escaped halves, which PyYAML leaves apart."""
    text = event.value
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise UnreadableError("half of a character (a lone surrogate)", _line(event)) from None
