"""The results of a sweep: a line per run and a line per variant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tabulate import tabulate

from remuda.sweeping.record import RunRecord


@dataclass(frozen=True)
class VariantSummary:
    """One variant over its seeds; mean and population standard deviation, nan where no seed has a value."""

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
    return [_summary(members) for members in groups.values()]


def runs_table(records: Sequence[RunRecord]) -> str:
    """A line per run: how it ended, or how far it is."""
    rows = [
        (
            one.name,
            one.state,
            _shortened(one.reason or ""),
            one.env_step,
            _number(one.last_return),
            _number(one.best_return),
            f"{one.wall_s:.1f}",
        )
        for one in records
    ]
    headers = ("run", "state", "reason", "env_step", "last", "best", "seconds")
    return tabulate(rows, headers, disable_numparse=True, colalign=("left",) * 3 + ("right",) * 4)


def variants_table(summaries: Sequence[VariantSummary]) -> str:
    """A line per variant: mean and standard deviation over its seeds."""
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


def _summary(members: Sequence[RunRecord]) -> VariantSummary:
    best_mean, best_std = _mean_std([one.best_return for one in members])
    last_mean, last_std = _mean_std([one.last_return for one in members])
    return VariantSummary(
        members[0].variant,
        members[0].settings,
        len(members),
        sum(one.state == "finished" for one in members),
        best_mean,
        best_std,
        last_mean,
        last_std,
    )


def _mean_std(values: Sequence[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None]
    return (float(np.mean(known)), float(np.std(known))) if known else (math.nan, math.nan)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _spread(mean: float, std: float) -> str:
    return "-" if math.isnan(mean) else f"{mean:.2f} ± {std:.2f}"


def _shortened(text: str, longest: int = 36) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
