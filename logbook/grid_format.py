"""How values look in a text log: the grid of four columns and the `key: value` lines."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence

from remuda.logbook.lines import one_line

Value = float | int | str | Sequence[float]
"""What a report may say under one name; numpy scalars are fine."""

_VALUES_PER_BLOCK = 4


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
