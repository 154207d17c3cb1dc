"""What Slurm prints about jobs, as it was printed."""

from __future__ import annotations

import pytest

from remuda.deploy.slurm.commands import JobState, SlurmError, parse

SQUEUE = """\
1|CANCELLED|None|n1|(null)
2_1|PENDING|BeginTime||
2_0|RUNNING|None|n2|a|b
3|COMPLETING|None|n[1-2]|(null)
"""
SACCT = """\
7|COMPLETED|None|n1
8_0|CANCELLED by 1000|None|None assigned
"""


def test_squeue() -> None:
    assert parse(SQUEUE) == [
        JobState("1", "CANCELLED", "", "n1"),
        JobState("2_1", "PENDING", "BeginTime", ""),
        JobState("2_0", "RUNNING", "", "n2", "a|b"),
        JobState("3", "COMPLETING", "", "n[1-2]"),
    ]


def test_sacct() -> None:
    assert parse(SACCT) == [JobState("7", "COMPLETED", "", "n1"), JobState("8_0", "CANCELLED", "", "")]


@pytest.mark.parametrize(
    ("state", "fate"),
    [
        ("PENDING", "alive"),
        ("RUNNING", "alive"),
        ("COMPLETING", "alive"),
        ("SUSPENDED", "alive"),
        ("REQUEUE_HOLD", "alive"),
        ("COMPLETED", "done"),
        ("FAILED", "failed"),
        ("OUT_OF_MEMORY", "failed"),
        ("CANCELLED", "cancelled"),
        ("TIMEOUT", "lost"),
        ("PREEMPTED", "lost"),
        ("NODE_FAIL", "lost"),
        ("UNKNOWN", "lost"),
    ],
)
def test_what_a_state_means(state: str, fate: str) -> None:
    assert JobState("1", state).fate == fate


@pytest.mark.parametrize("text", ["1|RUNNING|None", "slurm_load_jobs error: x", "x|RUNNING|None|n1", "1||None|n1"])
def test_what_is_no_list_of_jobs_is_not_guessed_at(text: str) -> None:
    with pytest.raises(SlurmError, match="not understood"):
        parse(text)
