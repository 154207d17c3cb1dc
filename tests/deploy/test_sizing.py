"""Requests and answers: what is chosen, what the log says, and that both survive a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.deploy import sizing
from remuda.deploy.sizes import Costs, Sizes, SizingTask
from remuda.deploy.sizing import Measurement, SizeRequest, collectors_measured, measured
from remuda.tests.runner.runs import tiny_config

US = 1e-6
COSTS = Costs(4, {1: 1_000 * US}, {1: 50 * US, 64: 50 * US}, {1: 1 * US})
ASKED = SizingTask(collectors=None, num_envs=8)
"""Three collectors: the learner has the fourth core."""
COUNT = frozenset({"collector.count"})


@pytest.fixture
def request_(tmp_path: Path) -> SizeRequest:
    return SizeRequest(tiny_config(tmp_path / "user"), ASKED, COUNT)


def test_an_answer_has_the_numbers_that_were_asked_for(request_: SizeRequest) -> None:
    answer = Measurement(COSTS)
    assert answer.sizes(ASKED) == Sizes(3, 8, 1)
    assert answer.numbers(request_) == {"collector.count": 3}
    decision, figures = answer.lines(request_)
    assert decision.startswith("auto: collector.count 3, where about")
    assert figures.startswith("auto: measured on 4 cores")


def test_without_costs_the_defaults_stay(request_: SizeRequest) -> None:
    answer = Measurement(problem="RuntimeError: no display")
    assert answer.numbers(request_) == {}
    assert answer.lines(request_) == [
        "auto: collector.count: the defaults, since nothing could be measured: RuntimeError: no display"
    ]


def test_an_environment_that_fails_is_told(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, "env.kwargs.fails_at=1", "env.restarts_per_hour=0")
    answer = measured(SizeRequest(config, ASKED, COUNT))
    assert answer.costs is None
    assert "the floor gave way" in answer.problem


def test_a_child_writes_its_measurement(tmp_path: Path, request_: SizeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "measured", _as_if)
    request_.write(tmp_path)
    assert collectors_measured(tmp_path) == 3
    assert request_.answer(tmp_path) == Measurement(COSTS)


def test_a_dead_child_means_defaults(tmp_path: Path, request_: SizeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "measured", _die)
    request_.write(tmp_path)
    assert collectors_measured(tmp_path) == request_.config.collector.count == 2
    assert request_.answer(tmp_path).problem == "the measuring process ended with exit code 7"


def _as_if(request: SizeRequest) -> Measurement:
    """What was asked has come through the file."""
    assert (request.asked, request.auto, request.config.env.make) == (ASKED, COUNT, "walk:make")
    return Measurement(COSTS)


def _die(request: SizeRequest) -> Measurement:
    os._exit(7)
