"""Drawing panels with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from remuda.client.plots.curves import ENV_STEP, Curve, Estimator, Panel
from remuda.client.plots.runs import FloatArray

FORMATS: Final = (".png", ".pdf", ".svg")

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#1a1a1a")
"""The colours of Okabe and Ito, distinguishable by colour-blind people; neighbours in this order differ much."""
_DASHES: Final = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
"""Dashes for curves after the last colour, which reuse the colours."""
_PANEL_INCHES: Final = (5.4, 3.6)
_MAX_COLUMNS: Final = 3
DOTS_PER_INCH: Final = 200
_UNITS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_CHARACTERS_PER_INCH: Final = 14
_HANDLE_CHARACTERS: Final = 8
"""Width of a label's line sample and of the gap to the next label, in characters."""
_LINE_INCHES: Final = 0.19
STYLE: Final = {
    "font.size": 10,
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "remuda",  # the same curves give the same file
}
_NAMES: Final = {
    ENV_STEP: "Environment steps",
    "Time": "Wall-clock time (s)",
    "AverageTestEpRet": "Evaluation return",
    "AverageEpRet": "Training return",
    "EpLen": "Training episode length (steps)",
    "TestEpLen": "Evaluation episode length (steps)",
}
_BANDS: Final[dict[Estimator, str]] = {
    "mean": "mean ± standard deviation",
    "median": "median and middle half",
    "max": "max",
    "min": "min",
}


def draw(panels: Sequence[Panel], path: Path, *, estimator: Estimator) -> None:
    """Draw to `path`, with a suffix of FORMATS. Raises ImportError without matplotlib, and OSError."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = _layout(len(panels))
    width = _PANEL_INCHES[0] * columns
    legend = _Legend.of(panels, estimator, width)
    library: Any = matplotlib  # its own annotations leave every **kwargs unknown
    with library.rc_context(STYLE):
        figure: Any = Figure(figsize=(width, _PANEL_INCHES[1] * rows + legend.inches), layout="constrained")
        FigureCanvasAgg(figure)
        grid: Any = figure.subplots(rows, columns, squeeze=False)
        places = list(grid.flat)
        styles = _styles(panels)
        for panel, axes in zip(panels, places, strict=False):
            _draw_panel(panel, axes, styles)
        for axes in places[len(panels) :]:
            axes.set_visible(False)
        _draw_legend(legend, figure, places[: len(panels)])
        created: dict[str, dict[str, object]] = {".png": {"Software": None}, ".pdf": {"CreationDate": None}}
        metadata = created.get(path.suffix.lower(), {"Date": None})
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)


def _layout(panels: int) -> tuple[int, int]:
    """Rows and columns, as square as possible."""
    columns = min(panels, _MAX_COLUMNS if panels != 4 else 2)
    return math.ceil(panels / columns), columns


def _styles(panels: Sequence[Panel]) -> dict[str, tuple[str, Any]]:
    """Colour and dashes by label, the same in every panel."""
    labels = dict.fromkeys(curve.label for panel in panels for curve in panel.curves)
    return {
        label: (COLOURS[at % len(COLOURS)], _DASHES[at // len(COLOURS) % len(_DASHES)])
        for at, label in enumerate(labels)
    }


def _draw_panel(panel: Panel, axes: Any, styles: dict[str, tuple[str, Any]]) -> None:
    for curve in panel.curves:
        _draw_curve(curve, axes, *styles[curve.label])
    axes.set_xlabel(_NAMES.get(panel.x, panel.x))
    axes.set_ylabel(_NAMES.get(panel.y, panel.y))
    axes.margins(x=0.015)
    axes.xaxis.set_major_formatter(_numbers(np.concatenate([curve.x for curve in panel.curves])))
    axes.yaxis.set_major_formatter(_numbers(np.concatenate([curve.y for curve in panel.curves])))


def _draw_curve(curve: Curve, axes: Any, colour: str, dashes: Any) -> None:
    """Draw a curve: strong at positions with values of all runs of the group, and faint elsewhere."""
    whole = curve.count == curve.runs
    axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.07, linewidth=0)
    axes.fill_between(curve.x, curve.low, curve.high, where=whole, color=colour, alpha=0.12, linewidth=0)
    axes.plot(curve.x, curve.y, color=colour, linewidth=1.0, linestyle=dashes, alpha=0.45)
    strong = np.where(whole, curve.y, np.nan)
    axes.plot(curve.x, strong, color=colour, linewidth=1.8, linestyle=dashes, label=curve.label)


@dataclass(frozen=True)
class _Legend:
    """The legend, below all panels, so that no curve is hidden."""

    texts: dict[str, str]
    """By label of a curve."""
    title: str | None
    columns: int
    inches: float
    """Required height."""

    @classmethod
    def of(cls, panels: Sequence[Panel], estimator: Estimator, width_inches: float) -> _Legend:
        runs: dict[str, int] = {}
        for curve in [curve for panel in panels for curve in panel.curves]:
            runs[curve.label] = max(curve.runs, runs.get(curve.label, 0))
        counts = set(runs.values())
        texts = {label: label if len(counts) == 1 else f"{label}  (n = {count})" for label, count in runs.items()}
        number = f"{max(counts)}" if len(counts) == 1 else "n"
        title = f"{_BANDS[estimator]} over {number} runs" if max(counts) > 1 else None
        longest = max(map(len, texts.values()))
        fitting = max(1, int(width_inches * _CHARACTERS_PER_INCH) // (longest + _HANDLE_CHARACTERS))
        lines = math.ceil(len(texts) / fitting)
        return cls(texts, title, math.ceil(len(texts) / lines), _LINE_INCHES * (lines + (title is not None)))


def _draw_legend(legend: _Legend, figure: Any, places: Sequence[Any]) -> None:
    handles: dict[str, Any] = {}
    for axes in places:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    texts = [legend.texts[label] for label in handles]
    drawn = figure.legend(handles.values(), texts, title=legend.title, loc="outside lower center", ncols=legend.columns)
    drawn.get_title().set_fontsize(8.5)


def _numbers(values: FloatArray) -> Callable[[float, object], str]:
    """A formatter for the ticks of an axis, all with the same letter (k, M, G)."""
    largest = float(np.nanmax(np.abs(values), initial=0.0))
    divisor, letter = next((unit for unit in _UNITS if largest >= 10 * unit[0]), (1.0, ""))

    def written(value: float, _position: object) -> str:
        return f"{value / divisor:g}{letter if value else ''}"

    return written
