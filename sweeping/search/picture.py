"""A picture of a search: what each trial reached, and where in each setting's range the good ones lie."""

# matplotlib's annotations are partial.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import accumulate
from pathlib import Path

from remuda.sweeping.search.study import Trial

FILE = "study.png"
_PANEL_INCHES = (4.0, 3.2)
_COLUMNS = 3
_SHOWN = {"complete": ("tab:blue", "o"), "pruned": ("tab:orange", "x")}


def draw(folder: Path, trials: Sequence[Trial], log_settings: Collection[str]) -> Path | None:
    """Write study.png in the sweep's folder; returns its path, or None without matplotlib or without results.

    `log_settings` are drawn on a logarithmic axis. Settings that are no numbers have their values side by side.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    shown = [trial for trial in trials if trial.state in _SHOWN and trial.value is not None]
    if not shown:
        return None
    keys = list(dict.fromkeys(key for trial in shown for key in trial.settings))
    panels = 1 + len(keys)
    rows = math.ceil(panels / _COLUMNS)
    figure = Figure(figsize=(_PANEL_INCHES[0] * min(panels, _COLUMNS), _PANEL_INCHES[1] * rows), layout="constrained")
    axes = [figure.add_subplot(rows, min(panels, _COLUMNS), index + 1) for index in range(panels)]
    finished = [trial for trial in shown if trial.state == "complete"]
    best = list(accumulate((trial.value or 0.0 for trial in finished), max))
    axes[0].step([trial.number for trial in finished], best, where="post", color="grey", label="best so far")
    axes[0].set_xlabel("trial")
    for state, (colour, marker) in _SHOWN.items():
        some = [trial for trial in shown if trial.state == state]
        if not some:
            continue
        values = [trial.value or 0.0 for trial in some]
        label = {"complete": "finished", "pruned": "given up"}[state]
        axes[0].scatter([trial.number for trial in some], values, c=colour, marker=marker, label=label)
        for axis, key in zip(axes[1:], keys, strict=True):
            axis.scatter(_positions(shown, some, key), values, c=colour, marker=marker)
    axes[0].legend()
    for axis, key in zip(axes[1:], keys, strict=True):
        axis.set_xlabel(key)
        if key in log_settings:
            axis.set_xscale("log")
        elif not _is_number(shown, key):
            names = _names(shown, key)
            axis.set_xticks(range(len(names)), names)
    axes[0].set_ylabel("mean evaluation return")
    path = folder / FILE
    figure.savefig(path, dpi=100)
    return path


def _positions(shown: Sequence[Trial], some: Sequence[Trial], key: str) -> list[float]:
    if _is_number(shown, key):
        return [float(str(trial.settings[key])) for trial in some]
    names = _names(shown, key)
    return [float(names.index(str(trial.settings[key]))) for trial in some]


def _is_number(shown: Sequence[Trial], key: str) -> bool:
    return all(
        isinstance(trial.settings[key], int | float) and not isinstance(trial.settings[key], bool) for trial in shown
    )


def _names(shown: Sequence[Trial], key: str) -> list[str]:
    return sorted({str(trial.settings[key]) for trial in shown})
