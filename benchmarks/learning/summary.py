"""From the runs of both sides to figures, in the form of all benchmarks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from remuda.benchmarks.figure import Figure, Goal
from remuda.benchmarks.learning.runs import OURS, PEER, Run
from remuda.benchmarks.learning.tasks import Task

STEPS_GOAL, RETURN_GOAL = "<= 1", ">= 1"
ALL, NONE = ">= 1", "<= 0"
"""Goals for the share of the seeds that reach the task's return."""


def figures(task: Task, runs: Sequence[Run]) -> list[Figure]:
    """How many seeds reached the task's return; and beside the peer the medians over the seeds: steps and seconds to
    that return, or seconds and the return that was reached.

    A run that did not reach the return counts as infinitely long. Seconds are left out where other programs kept the
    machine busy during any of the runs; seconds of processor time are compared there, too.
    """
    mine = [run for run in runs if run.side == OURS]
    peers = [run for run in runs if run.side == PEER]
    found = [_solved(task, mine)] if mine and task.stop_value is not None else []
    if not mine or not peers:
        return found
    if all(run.quiet for run in runs):
        seconds = ([_until(run, run.wall_s) for run in side] for side in (mine, peers))
        found.append(_figure(task, "wall", "s", task.wall_goal, *seconds))
    if all(run.processor_s is not None for run in runs):
        seconds = ([_until(run, run.processor_s or 0.0) for run in side] for side in (mine, peers))
        found.append(_figure(task, "processor", "s", task.wall_goal, *seconds))
    if task.stop_value is None:
        returns = ([run.last_return for run in side] for side in (mine, peers))
        return [*found, _figure(task, "return", "return", RETURN_GOAL, *returns)]
    steps = ([_until(run, run.env_steps) for run in side] for side in (mine, peers))
    return [*found, _figure(task, "env_steps", "env steps", STEPS_GOAL, *steps)]


def _until(run: Run, value: float) -> float:
    return value if run.reached else math.inf


def _solved(task: Task, mine: list[Run]) -> Figure:
    reached, seeds = sum(run.reached for run in mine), len(mine)
    goal = ALL if task.solvable else NONE
    met = Goal.parse(goal).met(reached / seeds)
    return Figure(
        f"learning_{task.name}_solved", "seeds", reached, seeds, "all seeds", reached / seeds, goal, met, seeds
    )


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
