"""Run folders with just what a plot reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

COLUMNS = ("Epoch", "AverageEpRet", "AverageTestEpRet", "TotalEnvInteracts", "LossQ", "Time")


def table(rows: Sequence[Sequence[object]], columns: Sequence[str] = COLUMNS) -> str:
    """The text of a progress.txt."""
    return "".join("\t".join(map(str, row)) + "\n" for row in (columns, *rows))


def points(*pairs: tuple[float, float], evaluated: bool = True) -> list[list[object]]:
    """Rows with these env_steps and returns; in training episodes half of it."""
    return [
        [epoch, y / 2, y if evaluated else "nan", int(x), 0.5, x / 100] for epoch, (x, y) in enumerate(pairs, start=1)
    ]


def ours(name: str, seed: int, **learner: object) -> dict[str, object]:
    """The part of a config.json that says which experiment it is."""
    return {"name": name, "seed": seed, "env": {"id": "CartPole-v1"}, "learner": {"batch_size": 64, **learner}}


def make_run(
    root: Path, rows: Sequence[Sequence[object]], config: Mapping[str, object] | None = None, **options: Sequence[str]
) -> Path:
    """Write one; without a config it is of nobody we know."""
    root.mkdir(parents=True)
    (root / "progress.txt").write_text(table(rows, **options))
    if config is not None:
        (root / "config.json").write_text(json.dumps(config))
    return root
