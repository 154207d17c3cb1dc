"""When a worker is started again, with every moment given."""

from __future__ import annotations

import pytest

from remuda.deploy.supervision import (
    DEATHS_IN_A_ROW,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_ORPHANED,
    EXIT_REFUSED,
    LONGEST_DELAY_S,
    STABLE_AFTER_S,
    KeptProcess,
    SupervisedWorker,
    a_role_keeps_dying,
)


def run(worker: SupervisedWorker, seconds: float, exit_code: int = EXIT_FAILED) -> float | None:
    """One process; returns how long the next one has to wait."""
    started_s = 1_000.0 if worker.due_s is None else max(worker.due_s, 1_000.0)
    worker.started(started_s)
    worker.ended(exit_code, started_s + seconds)
    return None if worker.due_s is None else worker.due_s - (started_s + seconds)


def test_pauses_double_up_to_the_longest_and_no_number_of_early_deaths_is_the_last() -> None:
    """What it dies of may be the fault of one run: the next one must find a worker."""
    worker = SupervisedWorker("collector", "u")
    assert [run(worker, 0.1) for _ in range(3_000)] == pytest.approx([1, 2, 4, 8, 16] + 2_995 * [32])
    assert worker.given_up is None
    assert worker.keeps_dying


def test_what_becomes_of_a_worker_is_said_with_how_it_ended_and_when_it_is_started_again() -> None:
    worker = SupervisedWorker("collector", "u")
    worker.started(0.0)
    assert worker.former_exit == ""
    assert worker.ended(-6, 1.0) == "ended with signal 6 (SIGABRT); starting it again in 1 s"
    worker.started(2.0)
    assert worker.former_exit == "signal 6 (SIGABRT)"
    worker.started(2.0)
    assert worker.ended(-9, 2.0 + STABLE_AFTER_S) == "ended with signal 9 (SIGKILL); starting it again at once"
    worker.started(2.0)
    worker.early_deaths = DEATHS_IN_A_ROW
    assert worker.ended(1, 3.0) == "ended with exit code 1 (9 short runs in a row); starting it again in 32 s"


def test_a_death_long_after_the_start_resets_the_count_and_the_next_start_is_at_once() -> None:
    worker = SupervisedWorker("collector", "u")
    pauses = [run(worker, seconds) for seconds in (1, 1, 1, STABLE_AFTER_S, 1, STABLE_AFTER_S - 0.001, STABLE_AFTER_S)]
    assert pauses == pytest.approx([1, 2, 4, 0, 1, 2, 0])


@pytest.mark.parametrize("exit_code", [EXIT_DONE, EXIT_REFUSED, EXIT_ORPHANED, EXIT_FAILED, 2, 130, -9])
def test_only_final_exit_codes_end_it(exit_code: int) -> None:
    worker = SupervisedWorker("collector", "u")
    is_final = exit_code in (EXIT_DONE, EXIT_REFUSED, EXIT_ORPHANED)
    assert run(worker, 0.1, exit_code) == (None if is_final else pytest.approx(1.0))
    assert (worker.given_up is not None) == is_final
    assert not worker.keeps_dying


def test_a_role_keeps_dying_once_all_its_workers_do() -> None:
    first, second = SupervisedWorker("collector", "u"), SupervisedWorker("collector", "v")
    workers = [first, second, SupervisedWorker("learner", "w")]
    first.early_deaths = DEATHS_IN_A_ROW
    assert not a_role_keeps_dying(workers)
    second.early_deaths = DEATHS_IN_A_ROW
    assert a_role_keeps_dying(workers)


# --- a process beside the workers ---
def test_a_process_that_is_killed_is_started_again_after_a_pause_and_said_once() -> None:
    kept, said = KeptProcess("coordinator"), list[str]()
    kept.started(0.0)
    assert [kept.after(-9, now_s, said.append) for now_s in (5.0, 5.9, 6.0)] == ["wait", "wait", "start"]
    assert said == ["the coordinator ended with signal 9 (SIGKILL); starting it again in 1 s"]
    kept.started(6.0)
    assert kept.after(-9, 6.0 + STABLE_AFTER_S, said.append) == "start", "what has lived long is missed least"
    assert said[1:] == ["the coordinator ended with signal 9 (SIGKILL); starting it again at once"]


def test_a_process_that_ends_by_itself_would_do_so_again() -> None:
    kept, said = KeptProcess("coordinator"), list[str]()
    kept.started(0.0)
    assert [kept.after(exit_code, 100.0, said.append) for exit_code in (0, 1)] == ["give up", "give up"]
    assert said == []


def test_a_process_that_keeps_dying_is_given_up() -> None:
    kept, now_s, said = KeptProcess("coordinator"), 0.0, list[str]()
    for _ in range(DEATHS_IN_A_ROW - 1):
        kept.started(now_s)
        assert kept.after(-9, now_s, said.append) == "wait"
        now_s += LONGEST_DELAY_S
        assert kept.after(-9, now_s, said.append) == "start"
    kept.started(now_s)
    assert kept.after(-9, now_s + 1.0, said.append) == "give up"
    assert len(said) == DEATHS_IN_A_ROW
