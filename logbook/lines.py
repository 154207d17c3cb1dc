"""Text logs: records that text from outside cannot imitate, and the tables and lines inside them."""

from __future__ import annotations

import inspect
import logging
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from remuda.storage.appended import AppendedFile

_HERE = os.path.dirname(__file__)
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_CONTINUED_BRACKET = re.compile(r"\n(?=\[)")
_PASS_ON = ("_say", "_say_of")
"""Functions of these names only pass on what their callers say."""
_FORMAT = logging.Formatter("[%(asctime)s][%(filename)s:%(lineno)d][%(levelname)s] %(message)s", "%Y-%m-%d %H:%M:%S")
Value = float | int | str | Sequence[float]
"""What a report may say under one name; numpy scalars are fine."""
_VALUES_PER_BLOCK = 4


class SourceLine(NamedTuple):
    """A line of a source file."""

    file: str
    line: int


class TextLog:
    """Appends records `[2021-07-16 16:42:28][file.py:224][INFO] message` to a file, each flushed at once.

    file.py:224 is the place that speaks: the nearest caller outside this package, unless another place is given. A
    write that fails raises OSError. The process's own loggers are not used or changed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _end_torn_line(path)
        self._file = AppendedFile(path)

    def info(self, text: str) -> None:
        """Write a record of level INFO."""
        self.write(logging.INFO, text)

    def warning(self, text: str) -> None:
        """Write a record of level WARNING."""
        self.write(logging.WARNING, text)

    def error(self, text: str) -> None:
        """Write a record of level ERROR."""
        self.write(logging.ERROR, text)

    def write(self, level: int, text: str, at: SourceLine | None = None) -> None:
        """Write one record of a `logging` level; control characters are escaped (see `unforgeable`)."""
        file, line = at or caller(_HERE)
        record = logging.LogRecord("", level, file, line, unforgeable(text), None, None)
        self._file.append((_FORMAT.format(record) + "\n").encode())

    def close(self) -> None:
        """Close the file; the log can be opened again and continued."""
        self._file.close()


def unforgeable(text: str) -> str:
    r"""Make text safe to log: it keeps its lines, but none of them looks like a record or controls a terminal.

    Control characters except newline and tab are written as escapes (`\x1b`), and later lines that start with a
    bracket, as records do, are indented by a space.
    """
    if not text.replace("\n", "").replace("\t", "").isprintable():
        text = "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _CONTINUED_BRACKET.sub("\n ", text)


def one_line(text: str) -> str:
    r"""Make text safe for a line or a table cell: newlines and tabs are escaped, too."""
    return unforgeable(text.replace("\n", r"\n").replace("\t", r"\t"))


def caller(inside: str) -> SourceLine:
    """Find the nearest caller outside the folder `inside`, in a source file, that speaks for itself."""
    frame = inspect.currentframe()
    while frame is not None and (
        os.path.dirname(frame.f_code.co_filename) in ("", _HERE, inside) or frame.f_code.co_name in _PASS_ON
    ):
        frame = frame.f_back
    return SourceLine("unknown", 0) if frame is None else SourceLine(frame.f_code.co_filename, frame.f_lineno)


def _end_torn_line(path: Path) -> None:
    """End the line that a killed writer left unfinished, so that the next record starts on a new line."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with open(path, "rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


def grid(values: Mapping[str, Value]) -> str:
    """Draw the values as tabulate grids of at most four, one below the other; no values give no text."""
    items = [(one_line(name), _text(value)) for name, value in values.items()]
    blocks = [items[start : start + _VALUES_PER_BLOCK] for start in range(0, len(items), _VALUES_PER_BLOCK)]
    return "\n".join(_block(block) for block in blocks)


def lines(values: Mapping[str, Value]) -> str:
    """Write the values as `key: value`, one per line."""
    return "\n".join(f"{one_line(name)}: {_text(value)}" for name, value in values.items())


def _block(items: Sequence[tuple[str, str]]) -> str:
    """As tabulate draws `grid`; it takes a quarter of a millisecond for that, as long as a small update."""
    columns = [("Name", "Value"), *items]
    widths = [max(map(len, column)) for column in columns]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])
    rows = (
        "| " + " | ".join(column[row].ljust(width) for column, width in zip(columns, widths, strict=True)) + " |"
        for row in (0, 1)
    )
    return "\n".join((rule, next(rows), rule, next(rows), rule))


def _text(value: Value) -> str:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, numbers.Integral):
        return str(value)
    if isinstance(value, numbers.Real):
        return f"{float(value):.6f}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_text(element) for element in value) + "]"
    raise TypeError(f"a report may hold numbers, text and lists of numbers, not {type(value).__name__}")
