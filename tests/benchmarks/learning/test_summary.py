"""Figures of the learning benchmark, by hand."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import msgspec
import pytest

from remuda.benchmarks.learning.__main__ import store
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
    wall, steps = figures(SOLVE, [*mine, *peers])
    assert (wall.ours, wall.reference, wall.ratio, wall.met, wall.n) == (20.0, 50.0, 0.4, True, 3)
    assert (steps.ours, steps.reference, steps.ratio, steps.met) == (200.0, 400.0, 0.5, True)
    assert steps.name == "learning_pendulum_ppo_env_steps"


def test_who_does_not_get_there_took_for_ever() -> None:
    good, bad = run(OURS, 0, steps=100, wall_s=9.0), run(PEER, 0, steps=100, wall_s=1.0, reached=False)
    assert [figure.ratio for figure in figures(SOLVE, [good, bad])] == [0.0, 0.0]
    swapped = [msgspec.structs.replace(good, side=PEER), msgspec.structs.replace(bad, side=OURS)]
    assert [figure.met for figure in figures(SOLVE, swapped)] == [False, False]
    neither = [bad, msgspec.structs.replace(bad, side=OURS)]
    assert all(math.isnan(figure.ratio) and not figure.met for figure in figures(SOLVE, neither))


def test_after_equal_steps_returns_are_compared() -> None:
    wall, returns = figures(
        TRAIN, [run(OURS, 0, steps=9, wall_s=4.0, returns=30.0), run(PEER, 0, steps=9, wall_s=10.0, returns=20.0)]
    )
    assert (wall.ratio, wall.met) == (0.4, True)
    assert (returns.ours, returns.reference, returns.ratio, returns.met) == (30.0, 20.0, 1.5, True)


def test_without_a_peer_there_are_no_figures() -> None:
    assert figures(SOLVE, [run(OURS, 0, steps=1, wall_s=1.0)]) == []


def test_what_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    runs = [run(side, seed, steps=5, wall_s=2.0) for seed in range(2) for side in (OURS, PEER)]
    store(SOLVE, runs, None, tmp_path)
    head, *lines = [msgspec.json.decode(line) for line in (tmp_path / "pendulum_ppo.jsonl").read_bytes().splitlines()]
    assert head["task"]["env_id"] == "Pendulum-v1"
    assert [msgspec.convert(line, Run) for line in lines[:4]] == runs
    assert [line["name"] for line in lines[4:]] == ["learning_pendulum_ppo_wall", "learning_pendulum_ppo_env_steps"]
    assert (tmp_path / "pendulum_ppo.png").stat().st_size > 1_000
    assert capsys.readouterr().out.count("learning_pendulum_ppo") == 2
