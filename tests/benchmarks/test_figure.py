"""Figures: medians by turns, goals in both directions, references that cannot be measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator

import pytest

from remuda.benchmarks.figure import Figure, Goal, ReferenceFailedError, compare, main, to_json


def playing(*values: float, log: list[str] | None = None, name: str = "") -> Callable[[], float]:
    """A measure that returns these values one after the other."""
    left: Iterator[float] = iter(values)

    def measure() -> float:
        if log is not None:
            log.append(name)
        return next(left)

    return measure


def failing(message: str) -> Callable[[], float]:
    def measure() -> float:
        raise ReferenceFailedError(message)

    return measure


def figure(**changes: object) -> Figure:
    fields: dict[str, object] = {
        "name": "speed",
        "unit": "1/s",
        "ours": 4.0,
        "reference": 2.0,
        "reference_name": "peer",
        "ratio": 2.0,
        "goal": ">= 2",
        "met": True,
        "n": 3,
    }
    return Figure(**{**fields, **changes})  # type: ignore[arg-type]  # the fields are those above


def test_medians_of_all_runs_are_compared() -> None:
    (found,) = compare(
        "speed",
        unit="1/s",
        goal=">= 2",
        ours=playing(10, 1000, 12),
        references={"peer": playing(5, 4, 0.001)},
    )
    assert found == figure(ours=12, reference=4, ratio=3.0)


def test_everyone_is_measured_by_turns_and_the_order_rotates() -> None:
    log: list[str] = []
    compare(
        "speed",
        unit="1/s",
        goal=">= 1",
        ours=playing(*[1.0] * 4, log=log, name="ours"),
        references={name: playing(*[1.0] * 4, log=log, name=name) for name in ("a", "b")},
        n=4,
    )
    assert log == ["ours", "a", "b", "a", "b", "ours", "b", "ours", "a", "ours", "a", "b"]


@pytest.mark.parametrize(
    ("goal", "ours", "met"),
    [
        (">= 2", 2.0, True),
        (">= 2", 1.99, False),
        ("<= 0.25", 0.25, True),
        ("<= 0.25", 0.26, False),
        (">= 0.6", 100.0, True),
        ("<= 1", 0.0, True),
    ],
)
def test_goals_in_both_directions(goal: str, ours: float, met: bool) -> None:
    (found,) = compare("x", unit="s", goal=goal, ours=lambda: ours, references={"one": lambda: 1.0}, n=1)
    assert (found.ratio, found.met) == (ours, met)


@pytest.mark.parametrize("goal", ["> 2", "2", ">=2", ">= 2x", "at least 2", ">= 2 "])
def test_a_goal_that_reads_otherwise_is_refused_before_anything_is_measured(goal: str) -> None:
    with pytest.raises(ValueError, match="a goal reads"):
        compare("x", unit="s", goal=goal, ours=failing("measured"), references={})


def test_an_absolute_limit_is_a_reference_that_returns_it() -> None:
    (found,) = compare("memory", unit="GiB", goal="<= 1", ours=lambda: 3.0, references={"limit": lambda: 4.0})
    assert (found.ratio, found.met, found.reference) == (0.75, True, 4.0)


def test_a_reference_that_fails_is_reported_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []

    def flaky() -> float:
        calls.append("flaky")
        if len(calls) == 2:
            raise ReferenceFailedError("it crashed")
        return 1.0

    found = compare("x", unit="s", goal="<= 9", ours=lambda: 2.0, references={"bad": flaky, "good": lambda: 1.0})
    bad, good = found
    assert (good.ratio, good.met, good.failure) == (2.0, True, None)
    assert math.isnan(bad.reference)
    assert math.isnan(bad.ratio)
    assert (bad.met, bad.failure, len(calls)) == (False, "it crashed", 2)
    told = capsys.readouterr().err.splitlines()
    assert told[:3] == ["x, 1 of 3: ours 2 s", "x, 1 of 3: bad 1 s", "x, 1 of 3: good 1 s"]
    assert "x: no measurement of bad: it crashed" in told
    assert len(told) == 3 + 2 + 2 + 1


def test_what_ours_raises_is_raised() -> None:
    with pytest.raises(ReferenceFailedError, match="ours is broken"):
        compare("x", unit="s", goal=">= 1", ours=failing("ours is broken"), references={"peer": lambda: 1.0})


def test_a_reference_of_nothing_meets_no_goal() -> None:
    for goal in (">= 1", "<= 1"):
        (found,) = compare("x", unit="s", goal=goal, ours=lambda: 1.0, references={"none": lambda: 0.0})
        assert math.isnan(found.ratio)
        assert not found.met


def test_nan_meets_no_goal() -> None:
    assert not Goal.parse(">= 1").met(math.nan)
    assert not Goal.parse("<= 1").met(math.nan)


def test_one_json_line_with_the_agreed_keys() -> None:
    line = to_json(figure())
    assert "\n" not in line
    assert json.loads(line) == {
        "name": "speed",
        "unit": "1/s",
        "ours": 4.0,
        "reference": 2.0,
        "reference_name": "peer",
        "ratio": 2.0,
        "goal": ">= 2",
        "met": True,
        "n": 3,
    }


def test_a_failure_shows_in_the_line_and_numbers_that_are_none_are_null() -> None:
    fields = json.loads(to_json(figure(reference=math.nan, ratio=math.nan, met=False, failure="it crashed")))
    assert (fields["reference"], fields["ratio"], fields["met"], fields["failure"]) == (None, None, False, "it crashed")


@pytest.mark.parametrize(("arguments", "peers"), [([], False), (["--peers"], True)])
def test_main_prints_a_line_per_figure(
    arguments: list[str], peers: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[bool] = []

    def figures(with_peers: bool) -> list[Figure]:
        asked.append(with_peers)
        return [figure(), figure(name="other")]

    monkeypatch.setattr("sys.argv", ["speed", *arguments])
    main(figures)
    assert asked == [peers]
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == ["speed", "other"]
