"""The commands of Slurm, and what is told when one fails. Programs that print what Slurm has printed stand in."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.deploy.slurm import commands
from remuda.deploy.slurm.commands import JobState, SlurmError, parse, requeue, states, submit
from remuda.tests.deploy.conftest import Program

SQUEUE = """\
1|CANCELLED|None|n1|(null)
2_1|PENDING|BeginTime||
2_0|RUNNING|None|n2|a|b
3|COMPLETING|None|n[1-2]|(null)
"""


def test_an_error_is_told_in_slurms_own_words(program: Program) -> None:
    program("sbatch", "echo 'sbatch: error: invalid partition specified: moon' >&2; exit 1")
    with pytest.raises(SlurmError, match=r"^sbatch says: sbatch: error: invalid partition specified: moon$"):
        submit(["sbatch", "x.sh"])


def test_without_slurm_it_says_where_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="sbatch is not found: type this on a machine from which jobs"):
        submit(["sbatch", "x.sh"])


def test_one_that_does_not_answer_is_not_waited_for(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program("squeue", "exec sleep 600")
    monkeypatch.setattr(commands, "DEADLINE_S", 0.1)
    with pytest.raises(SlurmError, match=r"squeue has not answered for 0\.1 s"):
        states(["1"])


def test_all_jobs_are_asked_for_at_once(program: Program) -> None:
    noted = program("squeue", "printf '12|RUNNING|None|n1\\n13_0|PENDING|Resources|\\n13_1|PENDING|Resources|\\n'")
    assert states(["12", "13_0", "13_1"]) == {
        "12": JobState("12", "RUNNING", "", "n1"),
        "13_0": JobState("13_0", "PENDING", "Resources"),
        "13_1": JobState("13_1", "PENDING", "Resources"),
    }
    assert "--jobs=12,13 " in noted.read_text()
    assert states([]) == {}
    assert len(noted.read_text().splitlines()) == 1


def test_what_squeue_has_forgotten_is_in_the_accounting_or_unknown(program: Program) -> None:
    program("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    program("sacct", "echo '12|CANCELLED by 0|None|n1'")
    assert states(["12", "14"]) == {"12": JobState("12", "CANCELLED", "", "n1"), "14": JobState("14", "UNKNOWN")}
    program("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert states(["12"]) == {"12": JobState("12", "UNKNOWN")}


def test_a_controller_that_is_away_does_not_make_jobs_unknown(program: Program) -> None:
    program("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(SlurmError, match="Unable to contact slurm controller"):
        states(["12"])


def test_a_job_asks_to_be_started_again(program: Program) -> None:
    noted = program("scontrol", "true")
    assert requeue({"SLURM_JOB_ID": "12"}) == "job 12 is requeued"
    assert noted.read_text() == "requeue 12\n"
    program("scontrol", "echo 'Requested operation is presently disabled for job 12' >&2; exit 1")
    assert requeue({"SLURM_JOB_ID": "12"}) == (
        "job 12 is not requeued: scontrol says: Requested operation is presently disabled for job 12"
    )
    assert requeue({}) == "not requeued: this is no job of Slurm"


def test_squeue() -> None:
    assert parse(SQUEUE) == [
        JobState("1", "CANCELLED", "", "n1"),
        JobState("2_1", "PENDING", "BeginTime", ""),
        JobState("2_0", "RUNNING", "", "n2", "a|b"),
        JobState("3", "COMPLETING", "", "n[1-2]"),
    ]


@pytest.mark.parametrize("text", ["1|RUNNING|None", "slurm_load_jobs error: x", "x|RUNNING|None|n1", "1||None|n1"])
def test_what_is_no_list_of_jobs_is_not_guessed_at(text: str) -> None:
    with pytest.raises(SlurmError, match="not understood"):
        parse(text)


def test_what_a_state_means() -> None:
    fates = {
        "alive": ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUE_HOLD"),
        "done": ("COMPLETED",),
        "failed": ("FAILED", "OUT_OF_MEMORY"),
        "cancelled": ("CANCELLED",),
        "lost": ("TIMEOUT", "PREEMPTED", "NODE_FAIL", "UNKNOWN"),
    }
    for fate, names in fates.items():
        assert {JobState("1", name).fate for name in names} == {fate}
