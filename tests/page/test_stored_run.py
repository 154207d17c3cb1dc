"""The end of a run is read from the record that ends its log."""

from __future__ import annotations

import pytest

from remuda.page.stored_run import ended
from remuda.training.commander.end import End
from remuda.training.commander.outcomes import Outcomes

HEAD = "[2026-11-22 21:03:53][run_folder.py:160][INFO] "


def record(text: str) -> str:
    return f"{HEAD}{text}\n"


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (End("max_env_steps", "env_step 8007 has reached max_env_steps 8000"), "finished"),
        (End("stop_value", "mean evaluation return 200 of x; has reached stop_value 195"), "finished"),
        (End("stopped", "a client asked to stop"), "stopped"),
        (End("ValueError: a; b", "ValueError: a; b"), "failed"),
        (End("the disk took nothing", "the disk took nothing"), "failed"),
    ],
)
def test_state_and_reason_of_every_end(end: End, state: str) -> None:
    text = said(end)
    assert ended(record("begins") + record(text)) == (state, end.reason)


def test_who_was_stopped_with_its_coordinator_says_so() -> None:
    why = "the coordinator is shutting down: the run is over that this herd was launched for"
    assert ended(record(said(End("stopped", why)))) == ("stopped", why)


def said(end: End) -> str:
    outcomes = object.__new__(Outcomes)
    outcomes._experiment = "x"  # pyright: ignore[reportPrivateUsage]
    return outcomes.run_is_over(end, 7.3).text


def test_a_reason_that_is_a_sentence_stands_there_once_and_is_read_where_it_stands_twice() -> None:
    why = "RuntimeError: boom; and more"
    assert said(End(why, why)) == f"the run is over after 7.3 s: {why}"
    assert ended(record(f"the run is over after 7.3 s: {why}; {why}")) == ("failed", why)


def test_a_run_that_goes_on_or_was_killed_has_no_end() -> None:
    over = record(said(End("stopped", "a client asked to stop")))
    assert ended("") is None
    assert ended(record("collector joins")) is None
    assert ended(over + record("resumed") * 3) is None, "it was resumed"


def test_what_an_environment_prints_is_no_end() -> None:
    assert ended(record("an episode ended\n the run is over after 1.0 s: stopped; x")) is None
