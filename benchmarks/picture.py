"""One picture of all figures: how far each ratio is on the good or the bad side of its goal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from remuda.benchmarks.figure import Goal
from remuda.benchmarks.records import Record

_GOOD: Final = "#2a7d4f"
_BAD: Final = "#b3392f"
_UNKNOWN: Final = "#888888"


def score(record: Record) -> float | None:
    """Return how many times better than its goal a ratio is: 1 just meets it, below is missed. None if not measured."""
    goal = Goal.parse(record.goal)
    if record.ratio is None or record.ratio <= 0 or goal.bound <= 0:
        return None
    return record.ratio / goal.bound if goal.at_least else goal.bound / record.ratio


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw `records`, one row each, from the top, to a PNG at `path`. Needs the `plot` extra."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    # Any: matplotlib's own annotations leave every **kwargs unknown.
    picture: Any = Picture(figsize=(13, 1.2 + 0.3 * len(records)), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    for row, record in enumerate(records):
        value = score(record)
        colour = _UNKNOWN if value is None else _GOOD if record.met else _BAD
        if value is not None:
            axes.plot([1, value], [row, row], color=colour, linewidth=5, solid_capstyle="butt", alpha=0.85)
            axes.plot([value], [row], "o", color=colour, markersize=6)
        # In axes coordinates, right of the frame: the numbers stand in one column, however long the bars are.
        axes.text(
            1.01, row, _numbers(record), color=colour, va="center", fontsize=9, transform=axes.get_yaxis_transform()
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xlim(*_limits([value for record in records if (value := score(record)) is not None]))
    axes.xaxis.set_major_formatter(_times)
    axes.set_yticks(range(len(records)), [f"{record.name}  against  {record.reference_name}" for record in records])
    axes.tick_params(axis="y", labelsize=9, length=0)
    axes.set_ylim(len(records) - 0.4, -0.6)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_xlabel("times better than the goal  (left of 1: missed; ratio = ours / reference)")
    picture.savefig(path, dpi=110, metadata={"Software": None})


def _numbers(record: Record) -> str:
    if record.ratio is None:
        return f"not measured (goal {record.goal})"
    goal = f"goal {record.goal}" if Goal.parse(record.goal).bound else "no goal"
    return f"ratio {record.ratio:.3g} ({goal}); {record.ours:.4g} {record.unit}"


def _times(value: float, _position: object) -> str:
    return f"{value:g}x" if value >= 1 else f"1/{1 / value:g}"


def _limits(scores: Sequence[float]) -> tuple[float, float]:
    """Whole powers of two around all scores, one to each side at least."""
    low, high = min([0.5, *scores]), max([2.0, *scores])
    return 2.0 ** math.floor(math.log2(low) - 0.1), 2.0 ** math.ceil(math.log2(high) + 0.1)
