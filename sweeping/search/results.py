"""The results of a search: its trials, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from tabulate import tabulate

from remuda.sweeping.record import RunRecord
from remuda.sweeping.search.study import Trial


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The finished trial of the highest value; None if none has finished."""
    finished = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    return max(finished, key=lambda trial: trial.value or 0.0, default=None)


def trials_table(trials: Sequence[Trial], *, most: int) -> str:
    """A line per trial: finished ones by their value, then those that were given up, then the others; at most `most`,
    and how many more there are."""
    ranked = sorted(trials, key=_rank)
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    rows = [
        (
            f"t{trial.number:03d}",
            trial.state,
            "-" if trial.value is None else f"{trial.value:.2f}",
            *(_text(trial.settings.get(key)) for key in keys),
        )
        for trial in ranked[:most]
    ]
    table = tabulate(rows, ("trial", "state", "return", *keys), disable_numparse=True)
    return table if len(ranked) <= most else f"{table}\n… and {len(ranked) - most} more"


def failures(records: Sequence[RunRecord]) -> str:
    """A line per run that failed, with the reason, under a heading; empty if none did."""
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
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def _rank(trial: Trial) -> tuple[int, float, int]:
    order = {"complete": 0, "pruned": 1}.get(trial.state, 2)
    return order, 0.0 if trial.value is None else -trial.value, trial.number


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
