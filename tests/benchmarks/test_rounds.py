"""Rounds: each seed is run once by each side, whoever asks first, and a side that fails is left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from remuda.benchmarks.figure import ReferenceFailedError, compare
from remuda.benchmarks.rounds import Rounds, Run


def side(name: str, log: list[str]) -> Callable[[int], Run]:
    """A side whose run takes as many seconds as its seed says, and ten times as many steps."""

    def run(seed: int) -> Run:
        log.append(f"{name}{seed}")
        return Run(seconds=1.0 + seed, env_steps=10.0 * (1 + seed))

    return run


def failing(seed: int) -> Run:
    """Runs once, and never again."""
    if seed:
        raise ReferenceFailedError(f"it crashed with seed {seed}")
    return Run(1.0, 1.0)


def seconds(run: Run) -> float:
    return run.seconds


def env_steps(run: Run) -> float:
    return run.env_steps


def test_each_seed_is_run_once_for_all_figures() -> None:
    log: list[str] = []
    rounds = Rounds({"a": side("a", log), "b": side("b", log)})
    in_seconds, in_steps = rounds.measure("a", seconds), rounds.measure("a", env_steps)
    assert [in_seconds(), in_seconds(), in_steps(), in_steps(), in_steps()] == [1.0, 2.0, 10.0, 20.0, 30.0]
    assert sorted(log) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_sides_run_by_turns_and_the_order_rotates() -> None:
    log: list[str] = []
    rounds = Rounds({name: side(name, log) for name in "abc"})
    measure = rounds.measure("c", seconds)
    for _ in range(4):
        measure()
    assert log == ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2", "a3", "b3", "c3"]


def test_nothing_runs_before_a_figure_asks() -> None:
    log: list[str] = []
    Rounds({"a": side("a", log)}).measure("a", seconds)
    assert log == []


def test_a_side_that_fails_is_left_out_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    rounds = Rounds({"a": side("a", log), "bad": failing})
    found = [
        *compare("s", unit="s", goal="<= 1", ours=rounds.measure("a", seconds), references=_bad(rounds, seconds)),
        *compare("n", unit="n", goal="<= 1", ours=rounds.measure("a", env_steps), references=_bad(rounds, env_steps)),
    ]
    assert [(figure.ours, figure.failure) for figure in found] == [
        (2.0, "it crashed with seed 1"),
        (20.0, "it crashed with seed 1"),
    ]
    assert log == ["a0", "a1", "a2"]
    assert capsys.readouterr().err.count("it crashed with seed 1") == 2


def test_another_error_of_a_side_is_raised() -> None:
    def broken(seed: int) -> Run:
        raise RuntimeError(f"no seed {seed}")

    with pytest.raises(RuntimeError, match="no seed 0"):
        Rounds({"a": broken}).measure("a", seconds)()


def _bad(rounds: Rounds, what: Callable[[Run], float]) -> dict[str, Callable[[], float]]:
    return {"bad": rounds.measure("bad", what)}
