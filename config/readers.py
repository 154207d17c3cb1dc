"""Reads configs as YAML, JSON or a Python literal, with the lines of keys, and `--set key=value`."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import yaml
from pydantic import JsonValue

from remuda.config.errors import (
    MAX_DEPTH,
    MAX_VALUES,
    ConfigError,
    Document,
    Loc,
    UnreadableError,
    dotted,
    require_mapping,
    shortened,
    with_value,
)

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(inf|Inf|INF|nan|NaN|NAN)")


def read_yaml(text: str) -> Document:
    """Parse a whole file. Raises UnreadableError."""
    reader = _Reader(text)
    return Document(require_mapping(reader.document()), reader.lines)


class _Reader:
    """Recursive descent over PyYAML's events; the depth is limited, which protects Python's stack."""

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
    """Return the text of a scalar. JSON writes 😀 as two escaped surrogates, which PyYAML does not join."""
    text = event.value
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise UnreadableError("half of a character (a lone surrogate)", _line(event)) from None


_TOKEN = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*")(?P<key>\s*:)?|[\[\]{},\n]')


def read_json(text: str) -> Document:
    """Parse a whole file. Raises UnreadableError."""
    if not text.strip():
        require_mapping(None)
    try:
        value: JsonValue = json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"not valid JSON: {error.msg} (column {error.colno})", error.lineno) from None
    except (ValueError, RecursionError):
        raise UnreadableError("not a config: nested too deep, or a number of thousands of digits") from None
    return Document(require_mapping(value), _lines_of_json(text))


def _lines_of_json(text: str) -> dict[Loc, int]:
    """Return the lines of all keys in valid JSON. Raises UnreadableError for a repeated key."""
    lines: dict[Loc, int] = {}
    line = 1
    open_at: list[str | int] = []  # per open collection, where in it we are: a key, or the index of an item
    for match in _TOKEN.finditer(text):
        token = match[0]
        if match["key"]:
            open_at[-1] = str(json.loads(match["string"]))
            loc = tuple(open_at)
            if loc in lines:
                raise UnreadableError(f"{dotted(loc)}: given twice (first on line {lines[loc]})", line)
            lines[loc] = line
        elif token in "{[":  # noqa: S105  (a token of JSON)
            open_at.append(0)
            if len(open_at) > MAX_DEPTH:
                raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels", line)
        elif token in "}]":  # noqa: S105  (a token of JSON)
            open_at.pop()
        elif token == ",":  # noqa: S105  (a token of JSON)
            last = open_at[-1]
            open_at[-1] = last + 1 if isinstance(last, int) else last
        line += token.count("\n")
    return lines


VARIABLE = "exp_config"

_COMMENT_OR_STRING = re.compile(
    r"""\#[^\n]* | (?P<prefix>[A-Za-z]{0,2}) (?: \'{3}(?:[^\\]|\\.)*?\'{3} | "{3}(?:[^\\]|\\.)*?"{3}
    | \'(?:[^\'\\\n]|\\.)*\' | "(?:[^"\\\n]|\\.)*" )""",
    re.DOTALL | re.VERBOSE,
)
"""A comment or a string, as in Python: no string or comment begins inside."""


def read_python(text: str) -> Document:
    """Parse a whole file. Raises UnreadableError for anything but a single assignment of a literal."""
    _refuse_f_strings(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a string is the author's business
            module = ast.parse(text)
    except SyntaxError as error:
        raise UnreadableError(f"not valid Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError):
        raise UnreadableError("not a config: nested too deep, or not text") from None
    lines: dict[Loc, int] = {}
    return Document(require_mapping(_python_value(_assigned(module), (), lines)), lines)


def _refuse_f_strings(text: str) -> None:
    """Refuse f-strings: they are not plain values, and Python 3.11's parser may need many seconds for an f-string."""
    for found in _COMMENT_OR_STRING.finditer(text):
        if "f" in (found["prefix"] or "").lower():
            raise UnreadableError("an f-string is not a plain value", text.count("\n", 0, found.start()) + 1)


def _assigned(module: ast.Module) -> ast.expr:
    """Return the value assigned to the variable. The file must contain nothing else."""
    if not module.body:
        require_mapping(None)
    for number, statement in enumerate(module.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if name == VARIABLE and number == 0:
                continue
            case _:
                text = f"only one `{VARIABLE} = {{…}}` is accepted; nothing in a config file is executed"
                raise UnreadableError(text, statement.lineno)
    return cast(ast.Assign, module.body[0]).value


def _python_value(node: ast.expr, loc: Loc, lines: dict[Loc, int]) -> JsonValue:
    if len(loc) > MAX_DEPTH:
        raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels", node.lineno)
    if isinstance(node, ast.Dict):
        return _python_mapping(node, loc, lines)
    if isinstance(node, ast.List | ast.Tuple):
        return [_python_value(item, (*loc, index), lines) for index, item in enumerate(node.elts)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_python_number(node.operand, loc)
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | int | float)):
        return node.value
    raise UnreadableError(f"{dotted(loc) or VARIABLE}: not a plain value", node.lineno)


def _python_mapping(node: ast.Dict, loc: Loc, lines: dict[Loc, int]) -> dict[str, JsonValue]:
    mapping: dict[str, JsonValue] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise UnreadableError("a key must be a plain string", (key or value).lineno)
        here = (*loc, key.value)
        if key.value in mapping:
            raise UnreadableError(f"{dotted(here)}: given twice (first on line {lines[here]})", key.lineno)
        lines[here] = key.lineno
        mapping[key.value] = _python_value(value, here, lines)
    return mapping


def _python_number(node: ast.expr, loc: Loc) -> int | float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    raise UnreadableError(f"{dotted(loc) or VARIABLE}: not a plain value", node.lineno)


_LONGEST_SOURCE = 80


@dataclass(frozen=True)
class Override:
    """An overridden setting; `source` is the text of the override, for messages."""

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
        return Override(parts, _Reader(value).document(), source)
    except UnreadableError as problem:
        raise ConfigError([f"{source}: {problem.text}"]) from None


def apply_overrides(values: dict[str, JsonValue], overrides: Sequence[Override]) -> dict[str, JsonValue]:
    """Return `values` with all overrides, later overrides last; a section given as a whole replaces the section."""
    for override in overrides:
        values = with_value(values, override.loc, override.value)
    return values
