"""Who rests after a failure, for how long, and when an experiment is hopeless."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from remuda.coordinator.failures import FAILURES_IN_A_ROW, LEAST_S, LONGEST_REST_S, Failures
from remuda.training.snapshot import FailuresSnapshot

A, B, C = "a", "b", "c"


def test_rests_double_up_to_a_limit_and_work_wipes_the_record() -> None:
    failures, now_s, rests = Failures(), 100.0, list[float]()
    for _ in range(8):
        failures.failed(A, now_s)
        woken_s = now_s
        while A in failures.resting(woken_s):
            woken_s += 0.5
        rests.append(woken_s - now_s)
        now_s = woken_s
    assert rests == [1, 2, 4, 8, 16, 32, 32, 32]
    assert LONGEST_REST_S == 32
    failures.worked(A, None)
    failures.failed(A, now_s)
    assert A in failures.resting(now_s + 0.5)
    assert A not in failures.resting(now_s + 1.0)


def test_hopeless_takes_both_number_and_time() -> None:
    failures = Failures()
    for number in range(FAILURES_IN_A_ROW):
        assert failures.rest(0.0)[0] == 0.0
        failures.failed(f"{number}", 0.0)
    assert not failures.hopeless(0.0)
    assert failures.hopeless(0.0, passing=False)
    assert failures.rest(2.0)[0] == LEAST_S - 2.0
    assert failures.rest(LEAST_S)[0] == 0.0
    failures.failed(A, LEAST_S)
    assert failures.hopeless(LEAST_S)


def test_however_many_workers_fail_those_that_failed_last_are_kept() -> None:
    failures = Failures()
    for number in range(5_000):
        failures.failed(f"{number}", 0.0)
    kept = [row.worker for row in failures.rows(0.0)]
    assert 100 < len(kept) < 2_500
    assert kept == [f"{number}" for number in range(5_000 - len(kept), 5_000)]
    assert failures.resting(0.0) == set(kept)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("failed"), st.sampled_from("abc"), st.floats(0, 20)),
        st.tuples(st.just("worked"), st.sampled_from("abc"), st.floats(0, 20)),
        st.tuples(st.sampled_from(["moved", "counted"]), st.just(""), st.floats(0, 20)),
    ),
    max_size=30,
)


@given(before=EVENTS, after=EVENTS, down_s=st.floats(-500, 500))
def test_over_a_restart_everything_stays_as_it_was(
    before: list[tuple[str, str, float]], after: list[tuple[str, str, float]], down_s: float
) -> None:
    """Even where the clock of the next process begins elsewhere."""
    one, now_s = Failures(), 50.0
    for event in before:
        now_s = happen(one, event, now_s)
    snapshot = msgspec.msgpack.decode(msgspec.msgpack.encode(one.snapshot(now_s)), type=FailuresSnapshot)
    two, shift_s = Failures(), down_s
    two.restore(snapshot, one.in_a_row, [], now_s + shift_s)
    for event in after:
        later_s = happen(one, event, now_s)
        happen(two, event, now_s + shift_s)
        now_s = later_s
        assert two.in_a_row == one.in_a_row
        for check_s in (now_s + 0.01, now_s + 3.3, now_s + 17.7):
            assert abs(two.rest(check_s + shift_s)[0] - one.rest(check_s)[0]) < 1e-6


def happen(failures: Failures, event: tuple[str, str, float], now_s: float) -> float:
    what, worker, pause_s = event
    now_s += pause_s
    match what:
        case "failed":
            failures.failed(worker, now_s)
        case "worked":
            failures.worked(worker, None)
        case "moved":
            failures.worked(C, None, counts=True)
        case _:
            failures.counted(now_s)
    return now_s
