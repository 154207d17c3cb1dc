"""What Slurm prints about jobs, as it was printed."""

from __future__ import annotations

import pytest

from remuda.deploy.slurm.commands import JobState, SlurmError, parse, submitted, tasks_of

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


def test_a_state_is_told_in_words() -> None:
    assert str(JobState("1", "PENDING", "Resources")) == "waits (Resources)"
    assert str(JobState("1", "RUNNING", "", "n2")) == "running on n2"
    assert str(JobState("1", "NODE_FAIL")) == "node fail"


@pytest.mark.parametrize("text", ["1|RUNNING|None", "slurm_load_jobs error: x", "x|RUNNING|None|n1", "1||None|n1"])
def test_what_is_no_list_of_jobs_is_not_guessed_at(text: str) -> None:
    with pytest.raises(SlurmError, match="not understood"):
        parse(text)


def test_the_id_of_a_submitted_job() -> None:
    assert [submitted("12\n"), submitted("12;remuda\n")] == ["12", "12"]
    with pytest.raises(SlurmError, match="'Submitted batch job 12' instead of the id"):
        submitted("Submitted batch job 12")


def test_the_ids_of_an_array() -> None:
    assert tasks_of("12", 3) == ["12_0", "12_1", "12_2"]
