"""When a worker is started again, with every moment given."""

from __future__ import annotations

import pytest

from remuda.deploy.supervision import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_ORPHANED,
    EXIT_REFUSED,
    GOOD_LIFE_S,
    LIVES_IN_A_ROW,
    Slot,
    describe_exit,
)


def live(slot: Slot, seconds: float, exit_code: int = EXIT_FAILED) -> float | None:
    """One life; returns how long the next one has to wait."""
    born_s = 1_000.0 if slot.due_s is None else max(slot.due_s, 1_000.0)
    slot.born(born_s)
    slot.died(exit_code, born_s + seconds)
    return None if slot.due_s is None else slot.due_s - (born_s + seconds)


def test_each_life_is_a_new_incarnation_of_the_same_worker() -> None:
    slot = Slot("collector", "some-uuid")
    assert slot.due_s == 0.0  # at once
    assert [slot.born(now_s) for now_s in (1.0, 2.0, 3.0)] == [1, 2, 3]
    assert slot.uuid == "some-uuid"


def test_while_it_lives_nothing_is_due() -> None:
    slot = Slot("collector", "u")
    slot.born(0.0)
    assert slot.due_s is None
    assert slot.given_up is None


def test_pauses_double_up_to_the_longest_and_no_number_of_short_lives_is_the_last() -> None:
    """What it dies of may be the fault of one run: the next one shall find a worker."""
    slot = Slot("collector", "u")
    assert [live(slot, 0.1) for _ in range(3_000)] == pytest.approx([1, 2, 4, 8, 16] + 2_995 * [32])
    assert slot.given_up is None
    assert slot.keeps_dying


def test_what_becomes_of_a_worker_is_said_with_how_it_ended_and_when_it_is_started_again() -> None:
    slot = Slot("collector", "u")
    slot.born(0.0)
    assert slot.former_exit == ""
    assert slot.died(-6, 1.0) == "ended with signal 6 (SIGABRT); starting it again in 1 s"
    slot.born(2.0)
    assert slot.former_exit == "signal 6 (SIGABRT)"
    slot.born(2.0)
    assert slot.died(-9, 2.0 + GOOD_LIFE_S) == "ended with signal 9 (SIGKILL); starting it again at once"
    slot.born(2.0)
    slot.short_lives = LIVES_IN_A_ROW
    assert slot.died(1, 3.0) == "ended with exit code 1 (9 short runs in a row); starting it again in 32 s"


def test_a_good_life_wipes_the_record_and_the_next_one_begins_at_once() -> None:
    slot = Slot("collector", "u")
    pauses = [live(slot, seconds) for seconds in (1, 1, 1, GOOD_LIFE_S, 1, GOOD_LIFE_S - 0.001, GOOD_LIFE_S)]
    assert pauses == pytest.approx([1, 2, 4, 0, 1, 2, 0])


def test_good_lives_go_on_for_ever() -> None:
    slot = Slot("collector", "u")
    assert [live(slot, GOOD_LIFE_S, -9) for _ in range(3 * LIVES_IN_A_ROW)] == pytest.approx([0] * 3 * LIVES_IN_A_ROW)
    assert not slot.keeps_dying


@pytest.mark.parametrize("exit_code", [EXIT_DONE, EXIT_REFUSED, EXIT_ORPHANED])
def test_final_exit_codes_end_it(exit_code: int) -> None:
    slot = Slot("collector", "u")
    live(slot, 0.1)
    assert live(slot, 0.1, exit_code) is None
    assert slot.given_up is not None
    assert not slot.keeps_dying


@pytest.mark.parametrize("exit_code", [EXIT_FAILED, 2, 130, -9, -11])
def test_every_other_end_is_followed_by_another_life(exit_code: int) -> None:
    slot = Slot("collector", "u")
    assert live(slot, 0.1, exit_code) == pytest.approx(1.0)
    assert slot.given_up is None


def test_an_end_is_described() -> None:
    assert describe_exit(1) == "exit code 1"
    assert describe_exit(-9) == "signal 9 (SIGKILL)"
    assert describe_exit(-63) == "signal 63"
