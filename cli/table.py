"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

PLAIN_WIDTH = 160
"""Characters per line if the output is not a terminal."""
MAY_WRAP = ("name", "doing", "process")
"""Columns whose text may be wrapped."""
NARROW_WITHOUT = ("/s", "cores", "heard", "memory")
"""Columns that a narrow terminal does not show; --json always has them."""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, narrow: bool) -> Table:
    """A table for a terminal; a `narrow` one shows fewer columns."""
    from rich.table import Table
    from rich.text import Text

    from remuda.logbook.lines import one_line

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown = [not (narrow and column in NARROW_WITHOUT) for column in columns]
    for column in compress(columns, shown):
        made.add_column(column, no_wrap=column not in MAY_WRAP, overflow="ellipsis")
    for row in rows:  # as Text: names given by others must not be read as markup or terminal commands
        made.add_row(*(Text(one_line(cell)) for cell in compress(row, shown)))
    return made
