"""State and reason of a run's end, from the log in its folder."""

from __future__ import annotations

import pytest

from remuda.client.stored_run import ended
from remuda.training.commander.end import End
from remuda.training.commander.outcomes import Outcomes


def record(text: str) -> str:
    return f"[2026-11-22 21:03:53][run_folder.py:160][INFO] {text}\n"


def said(end: End) -> str:
    outcomes = object.__new__(Outcomes)
    outcomes._experiment = "x"  # pyright: ignore[reportPrivateUsage]
    return outcomes.run_is_over(end, 7.3).text


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (End("max_env_steps", "env_step 8007 has reached max_env_steps 8000"), "finished"),
        (End("stopped", "a client asked to stop"), "stopped"),
        (End("ValueError: a; b", "ValueError: a; b"), "failed"),
        (End("stopped", "the coordinator is shutting down"), "stopped"),
    ],
)
def test_state_and_reason_of_every_end(end: End, state: str) -> None:
    over = record(said(end))
    reason = end.explanation if end.explanation.startswith("the coordinator") else end.reason
    assert ended(record("begins") + over) == (state, reason)
    assert ended(over + record("resumed") * 3) is None, "it was resumed"
    assert ended(record("joins")) is ended(record(f"an episode ended\n {said(end)}")) is None
