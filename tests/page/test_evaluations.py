"""Evaluations are bounded in number, time and output, and end with the page."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest

from remuda.page import commands as module
from remuda.page.commands import Evaluations, RequestedEvaluation
from remuda.tests.patience import until

pytestmark = pytest.mark.processes


@pytest.fixture
def evaluations() -> Generator[Evaluations]:
    made = Evaluations()
    yield made
    made.close()


def begin(evaluations: Evaluations, code: str) -> RequestedEvaluation | None:
    return evaluations.begin("a", "best", 1, True, [sys.executable, "-S", "-c", code])


def ended(evaluations: Evaluations) -> RequestedEvaluation:
    until(lambda: evaluations.all[0].state != "running", "its end")
    return evaluations.all[0]


def test_what_it_prints_is_its_result(evaluations: Evaluations) -> None:
    begin(evaluations, "print('{\"reward_mean\": 2.5}')")
    assert (ended(evaluations).state, ended(evaluations).return_mean) == ("done", 2.5)


def test_why_it_failed_is_the_end_of_what_it_says(evaluations: Evaluations) -> None:
    begin(evaluations, "import sys; sys.stderr.write('x' * 100_000 + '\\n\\xff\\none\\ntwo\\nthree'); sys.exit(2)")
    assert (ended(evaluations).state, ended(evaluations).message) == ("failed", "one\ntwo\nthree")


def test_one_that_prints_too_much_has_failed(evaluations: Evaluations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OUTPUT_BYTES", 1 << 20)
    begin(evaluations, "print(' ' * (1 << 20) + '{}')")
    assert (ended(evaluations).state, ended(evaluations).message) == ("failed", "the command printed more than 1 MiB")


def test_one_that_takes_too_long_is_ended(evaluations: Evaluations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_S", 0.05)
    begin(evaluations, "import time; time.sleep(1_000)")
    assert ended(evaluations).message == "it took longer than 0.05 s"


def test_one_that_cannot_be_started_is_none(evaluations: Evaluations) -> None:
    with pytest.raises(FileNotFoundError):
        evaluations.begin("a", "best", 1, True, ["/nowhere/at/all"])
    assert evaluations.all == []


def test_at_the_end_all_end_and_none_begins(evaluations: Evaluations) -> None:
    for _ in range(module.AT_ONCE):
        assert begin(evaluations, "import time; time.sleep(1_000)") is not None
    assert begin(evaluations, "") is None, "so many go on at once"
    evaluations.close()
    assert [each.state for each in evaluations.all] == ["failed"] * module.AT_ONCE
    assert begin(evaluations, "") is None
