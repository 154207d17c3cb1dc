"""From the runs of both sides to figures, in the form of all benchmarks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from remuda.benchmarks.figure import Figure, Goal
from remuda.benchmarks.learning.runs import OURS, PEER, Run
from remuda.benchmarks.learning.tasks import Task

STEPS_GOAL, WALL_GOAL, RETURN_GOAL = "<= 1", "<= 0.5", ">= 1"


def figures(task: Task, runs: Sequence[Run]) -> list[Figure]:
    """Medians over the seeds: steps and seconds to the task's return, or seconds and the return that was reached.

    A run that did not reach the return counts as infinitely long. Without runs of the peer there are no figures.
    """
    mine = [run for run in runs if run.side == OURS]
    peers = [run for run in runs if run.side == PEER]
    if not mine or not peers:
        return []
    wall = _figure(task, "wall", "s", WALL_GOAL, [_wall_s(run) for run in mine], [_wall_s(run) for run in peers])
    if task.stop_value is None:
        returns = ([run.last_return for run in side] for side in (mine, peers))
        return [wall, _figure(task, "return", "return", RETURN_GOAL, *returns)]
    steps = ([_env_steps(run) for run in side] for side in (mine, peers))
    return [wall, _figure(task, "env_steps", "env steps", STEPS_GOAL, *steps)]


def _wall_s(run: Run) -> float:
    return run.wall_s if run.reached else math.inf


def _env_steps(run: Run) -> float:
    return run.env_steps if run.reached else math.inf


def _figure(task: Task, what: str, unit: str, goal: str, mine: list[float], peers: list[float]) -> Figure:
    ours, reference = statistics.median(mine), statistics.median(peers)
    ratio = _ratio(ours, reference)
    return Figure(
        f"learning_{task.name}_{what}", unit, ours, reference, PEER, ratio, goal, Goal.parse(goal).met(ratio), len(mine)
    )


def _ratio(ours: float, reference: float) -> float:
    """`ours` / `reference`: 0 where only the reference never got there, no number where neither did."""
    if math.isinf(reference):
        return math.nan if math.isinf(ours) else 0.0
    return ours / reference if reference else math.nan
