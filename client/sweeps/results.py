"""The results of a sweep or a search as tables, JSON and a picture."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
import numpy as np
from tabulate import tabulate

from remuda.client.progress import number
from remuda.client.sweeps.population import setting_text
from remuda.client.sweeps.record import RunRecord
from remuda.config.errors import shortened

if TYPE_CHECKING:  # it imports optuna
    from remuda.client.sweeps.study import Trial

_LONGEST_REASON = 36


class Result(Protocol):
    """A run with its state and returns."""

    @property
    def state(self) -> str: ...
    @property
    def best_return(self) -> float | None: ...
    @property
    def last_return(self) -> float | None: ...


@dataclass(frozen=True)
class VariantSummary:
    """A variant over its seeds: mean and population standard deviation, nan without any value."""

    variant: str
    settings: Mapping[str, Any]
    seeds: int
    finished: int
    best_mean: float
    best_std: float
    last_mean: float
    last_std: float


def by_variant(records: Sequence[RunRecord]) -> list[VariantSummary]:
    """In the order of the grid."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.variant, []).append(record)
    return [summary(name, members, members[0].settings) for name, members in groups.items()]


def runs_table(records: Sequence[RunRecord]) -> str:
    """Format a line per run: its end, or its progress."""
    rows = [
        (
            one.name,
            one.state,
            shortened(one.reason or "", _LONGEST_REASON),
            one.env_step,
            number(one.last_return),
            number(one.best_return),
            f"{one.wall_s:.1f}",
        )
        for one in records
    ]
    headers = ("run", "state", "reason", "env_step", "last", "best", "seconds")
    return tabulate(rows, headers, disable_numparse=True, colalign=("left",) * 3 + ("right",) * 4)


def variants_table(summaries: Sequence[VariantSummary]) -> str:
    """Format a line per variant: mean and standard deviation over seeds."""
    rows = [
        (
            one.variant,
            f"{one.finished}/{one.seeds}",
            _spread(one.last_mean, one.last_std),
            _spread(one.best_mean, one.best_std),
        )
        for one in summaries
    ]
    headers = ("variant", "finished", "last", "best")
    return tabulate(rows, headers, disable_numparse=True, colalign=("left", "right", "right", "right"))


def summary(variant: str, members: Sequence[Result], settings: Mapping[str, Any]) -> VariantSummary:
    """Return mean and deviation over the seeds of a variant."""
    best, last = mean_std([one.best_return for one in members]), mean_std([one.last_return for one in members])
    finished = sum(one.state == "finished" for one in members)
    return VariantSummary(variant, settings, len(members), finished, *best, *last)


def mean_std(values: Sequence[float | None]) -> tuple[float, float]:
    """Return mean and population standard deviation of the finite values; nan without any."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return (float(np.mean(known)), float(np.std(known))) if known else (math.nan, math.nan)


def _spread(mean: float, std: float) -> str:
    return "-" if math.isnan(mean) else f"{mean:.2f} ± {std:.2f}"


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the finished trial with the highest value, or None."""
    finished = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    return max(finished, key=lambda trial: trial.value or 0.0, default=None)


def trials_table(trials: Sequence[Trial], *, most: int) -> str:
    """Format a line per trial: finished trials by value, then pruned trials, then the rest; at most `most` lines, and
    the number of further trials."""
    ranked = sorted(trials, key=_rank)
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    rows = [
        (
            f"t{trial.number:03d}",
            trial.state,
            number(trial.value),
            *(setting_text(trial.settings.get(key)) for key in keys),
        )
        for trial in ranked[:most]
    ]
    table = tabulate(rows, ("trial", "state", "return", *keys), disable_numparse=True)
    return table if len(ranked) <= most else f"{table}\n… and {len(ranked) - most} more"


def failures(records: Sequence[RunRecord]) -> str:
    """Format a line per failed run, with the reason, under a heading; empty without failures."""
    failed = [record for record in records if record.state == "failed"]
    told = [f"  {record.name}: {record.reason}" for record in failed]
    return "\n".join([f"{len(failed)} of {len(records)} runs failed:", *told]) if failed else ""


def results_json(
    folder: Path, records: Sequence[RunRecord], trials: Sequence[Trial], importances: Mapping[str, float]
) -> str:
    """The same for programs."""
    best = best_of(trials)
    content = {
        "folder": str(folder),
        "runs": records,
        "trials": trials,
        "best": None if best is None else best.number,
        "importances": importances,
    }
    return json_text(content)


def json_text(content: Mapping[str, object]) -> str:
    """Format results for programs."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def _rank(trial: Trial) -> tuple[int, float, int]:
    order = {"complete": 0, "pruned": 1}.get(trial.state, 2)
    return order, 0.0 if trial.value is None else -trial.value, trial.number


# matplotlib's annotations are partial.
# pyright: reportUnknownMemberType=false


PICTURE = "study.png"
_PANEL_INCHES = (4.0, 3.2)
_COLUMNS = 3
_SHOWN = {"complete": ("tab:blue", "o"), "pruned": ("tab:orange", "x")}


def draw(folder: Path, trials: Sequence[Trial], log_settings: Collection[str]) -> Path | None:
    """Write study.png into the sweep's folder; return its path, or None without matplotlib or without results.

    `log_settings` have a logarithmic axis. Values other than numbers are drawn side by side.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    shown = [trial for trial in trials if trial.state in _SHOWN and trial.value is not None]
    if not shown:
        return None
    keys = list(dict.fromkeys(key for trial in shown for key in trial.settings))
    numbers = {key for key in keys if all(type(trial.settings[key]) in (int, float) for trial in shown)}
    panels = 1 + len(keys)
    rows = math.ceil(panels / _COLUMNS)
    figure = Figure(figsize=(_PANEL_INCHES[0] * min(panels, _COLUMNS), _PANEL_INCHES[1] * rows), layout="constrained")
    axes = [figure.add_subplot(rows, min(panels, _COLUMNS), index + 1) for index in range(panels)]
    finished = [trial for trial in shown if trial.state == "complete"]
    best = list(accumulate((trial.value or 0.0 for trial in finished), max))
    axes[0].step([trial.number for trial in finished], best, where="post", color="grey", label="best so far")
    axes[0].set_xlabel("trial")
    for axis, key in zip(axes[1:], keys, strict=True):
        axis.set_xlabel(key)
        if key in log_settings:
            axis.set_xscale("log")
        elif key not in numbers:
            cast("Any", axis.xaxis).update_units(sorted({str(trial.settings[key]) for trial in shown}))
    for state, (colour, marker) in _SHOWN.items():
        some = [trial for trial in shown if trial.state == state]
        if not some:
            continue
        values = [trial.value or 0.0 for trial in some]
        label = {"complete": "finished", "pruned": "pruned"}[state]
        axes[0].scatter([trial.number for trial in some], values, c=colour, marker=marker, label=label)
        for axis, key in zip(axes[1:], keys, strict=True):
            given: list[Any] = [trial.settings[key] if key in numbers else str(trial.settings[key]) for trial in some]
            axis.scatter(given, values, c=colour, marker=marker)
    axes[0].legend()
    axes[0].set_ylabel("mean evaluation return")
    path = folder / PICTURE
    figure.savefig(path, dpi=100)
    return path
