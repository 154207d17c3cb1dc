"""A task's curves as a picture: both sides, mean and standard deviation over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from remuda.benchmarks.learning.runs import Run
from remuda.benchmarks.learning.tasks import Task
from remuda.plotting.curves import combined, line

_COLOURS = ("#2a7d4f", "#b3392f")


def draw(task: Task, runs: Sequence[Run], path: Path) -> None:
    """Write a PNG. Needs the `plot` extra."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    picture: Any = Picture(figsize=(7, 4.2), layout="constrained")  # Any: see benchmarks/picture.py
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    sides = sorted({run.side for run in runs})
    for side, colour in zip(sides, _COLOURS, strict=False):
        own = [run for run in runs if run.side == side and run.curve]
        lines = [line(*np.array(run.curve, np.float64).T) for run in own]
        if not lines:
            continue
        curve = combined(side, lines)
        seconds = np.median([run.wall_s for run in own])
        axes.plot(curve.x, curve.y, color=colour, label=f"{side}: {len(own)} seeds, {seconds:.0f} s")
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    if task.stop_value is not None:
        axes.axhline(task.stop_value, color="#888888", linestyle="--", linewidth=1)
    axes.set_title(f"{task.algorithm.upper()} on {task.env_id}")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean return of an evaluation")
    axes.grid(color="#dddddd")
    if sides:
        axes.legend()
    picture.savefig(path, dpi=110, metadata={"Software": None})
