"""The curves of all tasks in an environment as one picture: mean and standard deviation over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.benchmarks.learning.runs import OURS, PEER, Run
from remuda.benchmarks.learning.tasks import Task
from remuda.client.plots.curves import combined, line

_COLOURS = (
    "#2a7d4f",
    "#b3392f",
    "#1f5f99",
    "#c4661f",
    "#6b4a9c",
    "#7a7a1f",
    "#1f8a8a",
    "#9c3a74",
    "#333333",
    "#e0a100",
)
_STYLES = {OURS: "-", PEER: "--"}


@dataclass(frozen=True)
class Shown:
    """A task and its runs."""

    task: Task
    runs: Sequence[Run]


def draw(shown: Sequence[Shown], path: Path) -> None:
    """Write a PNG of tasks in the same environment, each in its colour, the peer's dashed. Needs the `plot` extra."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    picture: Any = Picture(figsize=(8, 4.8), layout="constrained")  # Any: see benchmarks/picture.py
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    for number, one in enumerate(shown):
        for side, style in _STYLES.items():
            runs = [run for run in one.runs if run.side == side and run.curve]
            if not runs:
                continue
            colour = _COLOURS[number % len(_COLOURS)]
            curve = combined(side, [line(*np.array(run.curve, np.float64).T) for run in runs])
            axes.plot(curve.x, curve.y, color=colour, linestyle=style, label=told(one.task, side, runs))
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.12, linewidth=0)
    for goal in sorted({one.task.stop_value for one in shown if one.task.stop_value is not None}):
        axes.axhline(goal, color="#888888", linestyle=":", linewidth=1)
    axes.set_title(title([one.task for one in shown]), fontsize=10)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean return of an evaluation")
    axes.grid(color="#dddddd")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    picture.savefig(path, dpi=110, metadata={"Software": None})


def title(tasks: Sequence[Task]) -> str:
    """The environment, the return that ends a run, and who must not reach it."""
    goals = sorted({task.stop_value for task in tasks if task.stop_value is not None})
    kept_out = [task.label for task in tasks if not task.solvable]
    parts = [tasks[0].env_id]
    if goals:
        parts.append(f"runs end at {' or '.join(f'{goal:g}' for goal in goals)}")
    if kept_out:
        parts.append(f"goal: all seeds get there, but none of {', '.join(kept_out)}")
    return "; ".join(parts)


def told(task: Task, side: str, runs: Sequence[Run]) -> str:
    """Of one side's runs for the legend: how many got there, and their seconds where those mean something."""
    name = task.label if side == OURS else f"{task.label}, {side}"
    solved = f"{sum(run.reached for run in runs)} of " if task.stop_value is not None else ""
    words = f"{name}: {solved}{len(runs)} seed{'' if len(runs) == 1 else 's'}"
    if not all(run.quiet for run in runs):
        return words
    return f"{words}, {np.median([run.wall_s for run in runs]):.0f} s"
