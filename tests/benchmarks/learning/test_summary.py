"""Figures of the learning benchmark, by hand."""

from __future__ import annotations

import dataclasses
import math

import msgspec

from remuda.benchmarks.learning.runs import OURS, PEER, Run
from remuda.benchmarks.learning.summary import figures
from remuda.benchmarks.learning.tasks import BY_NAME

SOLVE = BY_NAME["pendulum_ppo"]
TRAIN = dataclasses.replace(SOLVE, stop_value=None)


def run(side: str, seed: int, *, steps: int, wall_s: float, reached: bool = True, returns: float = 0.0) -> Run:
    return Run(SOLVE.name, side, seed, reached, steps, wall_s, [(0, -9.0), (1, returns), (2, returns), (3, returns)])


def test_steps_and_seconds_to_a_return_are_medians_over_the_seeds() -> None:
    mine = [run(OURS, seed, steps=steps, wall_s=steps / 10) for seed, steps in enumerate((100, 300, 200))]
    peers = [run(PEER, seed, steps=400, wall_s=50.0) for seed in range(3)]
    solved, wall, steps = figures(SOLVE, [*mine, *peers])
    assert (solved.ours, solved.reference, solved.met) == (3, 3, True)
    assert (wall.ours, wall.reference, wall.ratio, wall.met, wall.n) == (20.0, 50.0, 0.4, True, 3)
    assert (steps.ours, steps.reference, steps.ratio, steps.met) == (200.0, 400.0, 0.5, True)
    assert steps.name == "learning_pendulum_ppo_env_steps"


def test_who_does_not_get_there_took_for_ever() -> None:
    good, bad = run(OURS, 0, steps=100, wall_s=9.0), run(PEER, 0, steps=100, wall_s=1.0, reached=False)
    assert [figure.ratio for figure in figures(SOLVE, [good, bad])] == [1.0, 0.0, 0.0]
    swapped = [msgspec.structs.replace(good, side=PEER), msgspec.structs.replace(bad, side=OURS)]
    assert [figure.met for figure in figures(SOLVE, swapped)] == [False, False, False]
    neither = [bad, msgspec.structs.replace(bad, side=OURS)]
    _, *compared = figures(SOLVE, neither)
    assert all(math.isnan(figure.ratio) and not figure.met for figure in compared)


def test_after_equal_steps_returns_are_compared() -> None:
    wall, returns = figures(
        TRAIN, [run(OURS, 0, steps=9, wall_s=4.0, returns=30.0), run(PEER, 0, steps=9, wall_s=10.0, returns=20.0)]
    )
    assert (wall.ratio, wall.met) == (0.4, True)
    assert (returns.ours, returns.reference, returns.ratio, returns.met) == (30.0, 20.0, 1.5, True)


def test_seconds_beside_other_work_are_not_compared() -> None:
    quiet, busy = run(OURS, 0, steps=9, wall_s=4.0), run(PEER, 0, steps=9, wall_s=9.0)
    found = figures(SOLVE, [quiet, msgspec.structs.replace(busy, other_cores=1.0)])
    assert [figure.name.rpartition("ppo_")[2] for figure in found] == ["solved", "env_steps"]
    found = figures(SOLVE, [quiet, msgspec.structs.replace(busy, other_cores=0.1)])
    assert [figure.name.rpartition("ppo_")[2] for figure in found] == ["solved", "wall", "env_steps"]


def test_processor_time_is_compared_beside_other_work_too() -> None:
    mine = msgspec.structs.replace(run(OURS, 0, steps=9, wall_s=4.0), other_cores=1.0, processor_s=3.0)
    peer = msgspec.structs.replace(run(PEER, 0, steps=9, wall_s=9.0), other_cores=1.0, processor_s=6.0)
    _, processor, _ = figures(SOLVE, [mine, peer])
    assert (processor.name, processor.ratio, processor.met) == ("learning_pendulum_ppo_processor", 0.5, True)
    assert len(figures(SOLVE, [mine, msgspec.structs.replace(peer, processor_s=None)])) == 2, "an older run has none"
    late = msgspec.structs.replace(peer, reached=False)
    assert [figure.ratio for figure in figures(SOLVE, [mine, late])] == [1.0, 0.0, 0.0]


def test_without_a_peer_it_counts_how_many_seeds_got_there() -> None:
    good, bad = run(OURS, 0, steps=1, wall_s=1.0), run(OURS, 1, steps=9, wall_s=9.0, reached=False)
    (all_but_one,) = figures(SOLVE, [good, bad])
    assert (all_but_one.name, all_but_one.ours, all_but_one.reference) == ("learning_pendulum_ppo_solved", 1, 2)
    assert (all_but_one.ratio, all_but_one.met) == (0.5, False)
    (every,) = figures(SOLVE, [good])
    assert every.met
    assert figures(TRAIN, [good]) == []


def test_none_may_solve_what_cannot_be_solved() -> None:
    hopeless = dataclasses.replace(SOLVE, solvable=False)
    good, bad = run(OURS, 0, steps=1, wall_s=1.0), run(OURS, 1, steps=9, wall_s=9.0, reached=False)
    assert [figure.met for figure in figures(hopeless, [bad])] == [True]
    assert [figure.met for figure in figures(hopeless, [bad, good])] == [False]
