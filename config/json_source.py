"""Reading JSON, with the line of every key and no key given twice."""

from __future__ import annotations

import json
import re

from pydantic import JsonValue

from remuda.config.document import MAX_DEPTH, Document, Loc, UnreadableError, dotted, require_mapping

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
    return Document(require_mapping(value), _lines(text))


def _lines(text: str) -> dict[Loc, int]:
    """The line of every key of `text`, which is valid JSON. Raises UnreadableError for a key given twice."""
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
