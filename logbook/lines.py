"""Text logs: records that foreign text cannot imitate, and the tables and lines inside the records."""

from __future__ import annotations

import inspect
import logging
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from remuda.storage.record_file import AppendedFile

_HERE = os.path.dirname(__file__)
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_CONTINUED_BRACKET = re.compile(r"\n(?=\[)")
_PASS_ON = ("_say", "_say_of")
"""Functions that pass on messages of their callers."""
_FORMAT = logging.Formatter("[%(asctime)s][%(filename)s:%(lineno)d][%(levelname)s] %(message)s", "%Y-%m-%d %H:%M:%S")
Value = float | int | str | Sequence[float]
"""Value of a report under one name; numpy scalars are allowed."""
_VALUES_PER_BLOCK = 4


class SourceLine(NamedTuple):
    """A line of a source file."""

    file: str
    line: int


class TextLog:
    """Appends records `[2021-07-16 16:42:28][file.py:224][INFO] message` to a file, each flushed at once.

    file.py:224 is the source line: the nearest caller outside this package, or the given line. A failed write raises
    OSError. The loggers of the process stay untouched.
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
        """Write one record of a `logging` level, with escaped control characters (see `unforgeable`)."""
        file, line = at or caller(_HERE)
        record = logging.LogRecord("", level, file, line, unforgeable(text), None, None)
        self._file.append((_FORMAT.format(record) + "\n").encode())

    def close(self) -> None:
        """Close the file; the log can be opened again and continued."""
        self._file.close()


def unforgeable(text: str) -> str:
    r"""Make text safe to log: the lines stay, but none looks like a record or controls a terminal.

    Control characters except newline and tab become escapes (`\x1b`). Later lines with a bracket at the start, as in a
    record, are indented by a space.
    """
    if not text.replace("\n", "").replace("\t", "").isprintable():
        text = "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _CONTINUED_BRACKET.sub("\n ", text)


def one_line(text: str) -> str:
    r"""Make text safe for a line or a table cell: newlines and tabs are escaped, too."""
    return unforgeable(text.replace("\n", r"\n").replace("\t", r"\t"))


def caller(inside: str) -> SourceLine:
    """Find the nearest caller in a source file outside the folder `inside`, skipping _PASS_ON."""
    frame = inspect.currentframe()
    while frame is not None and (
        os.path.dirname(frame.f_code.co_filename) in ("", _HERE, inside) or frame.f_code.co_name in _PASS_ON
    ):
        frame = frame.f_back
    return SourceLine("unknown", 0) if frame is None else SourceLine(frame.f_code.co_filename, frame.f_lineno)


def _end_torn_line(path: Path) -> None:
    """End the last line of a killed writer, so that the next record starts on a new line."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with open(path, "rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


def grid(values: Mapping[str, Value]) -> str:
    """Draw the values as tabulate grids of at most four columns, one below another. No values give an empty text."""
    items = [(one_line(name), _text(value)) for name, value in values.items()]
    blocks = [items[start : start + _VALUES_PER_BLOCK] for start in range(0, len(items), _VALUES_PER_BLOCK)]
    return "\n".join(_block(block) for block in blocks)


def lines(values: Mapping[str, Value]) -> str:
    """Write the values as `key: value`, a line for each."""
    return "\n".join(f"{one_line(name)}: {_text(value)}" for name, value in values.items())


def _block(items: Sequence[tuple[str, str]]) -> str:
    """Draw a grid as tabulate does, which takes a quarter of a millisecond: as long as a small update."""
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
