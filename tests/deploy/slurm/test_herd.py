"""Which jobs are submitted again, when, and how often."""

from __future__ import annotations

from remuda.deploy.slurm.commands import JobState
from remuda.deploy.slurm.launcher import FIRST_PAUSE_S, LONGEST_PAUSE_S, STABLE_AFTER_S, WorkerJobs


def three_collectors(most: int = 10) -> WorkerJobs:
    jobs = WorkerJobs(most)
    for id in ("5_0", "5_1", "5_2"):
        jobs.add("collector", id)
    jobs.note(states("RUNNING", "5_0", "5_1", "5_2"), 0.0)
    return jobs


def states(state: str, *ids: str) -> dict[str, JobState]:
    return {id: JobState(id, state) for id in ids}


def test_what_runs_long_and_is_lost_is_replaced_at_once() -> None:
    jobs = three_collectors()
    assert jobs.note(states("PREEMPTED", "5_1"), STABLE_AFTER_S) == ["collector job 5_1 ended: preempted"]
    assert (jobs.alive, jobs.count("collector")) == (["5_0", "5_2"], 2)
    assert jobs.due(STABLE_AFTER_S) == {"collector": 1}
    jobs.submitted("collector", ["9_0"])
    assert jobs.due(STABLE_AFTER_S) == {}
    assert jobs.alive == ["5_0", "5_2", "9_0"]


def test_what_dies_at_its_start_is_replaced_after_pauses_that_double() -> None:
    jobs, now_s, id, pauses = WorkerJobs(10_000), 0.0, "5_0", list[float]()
    jobs.add("collector", id)
    for number in range(8):
        jobs.note(states("RUNNING", id), now_s)
        jobs.note(states("FAILED", id), now_s + 1.0)
        begun_s = now_s = now_s + 1.0
        while not jobs.due(now_s):
            now_s += 0.5
        pauses.append(now_s - begun_s)
        id = f"{number}_0"
        jobs.submitted("collector", [id])
    assert pauses == [min(FIRST_PAUSE_S * 2**number, LONGEST_PAUSE_S) for number in range(8)]


def test_what_ended_in_order_or_is_requeued_by_slurm_is_not_replaced() -> None:
    jobs = three_collectors()
    assert jobs.note({**states("COMPLETED", "5_0"), **states("PENDING", "5_1")}, 100.0) == []
    assert jobs.due(1_000.0) == {}
    assert jobs.alive == ["5_1", "5_2"]


def test_the_limit_holds_for_all_roles_together_and_is_told_once() -> None:
    jobs = three_collectors(most=2)
    jobs.add("evaluator", "6_0")
    jobs.note(states("TIMEOUT", "5_0", "5_1", "6_0"), 0.0)
    assert jobs.exhausted() is None, "replacements are still allowed"
    due = jobs.due(1_000.0)
    assert due == {"collector": 2}
    jobs.submitted("collector", ["7_0", "7_1"])
    assert jobs.exhausted() == (
        "jobs are missing that are not submitted again (1 evaluator): 2 have been (max_replacements)"
    )
    assert jobs.exhausted() is None
    assert jobs.due(2_000.0) == {}
    assert jobs.hopeless == "evaluator"


def test_there_is_hope_while_a_role_has_a_job_and_a_run_goes_on_without_reanalyzers() -> None:
    jobs = three_collectors(most=0)
    jobs.add("reanalyzer", "6_0")
    jobs.note(states("FAILED", "5_0", "5_1", "6_0"), 0.0)
    assert jobs.hopeless is None
    jobs.note(states("FAILED", "5_2"), 1.0)
    assert jobs.hopeless == "collector"
