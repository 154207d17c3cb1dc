"""Deaths under a lease: a run that kills its workers fails, and one that loses a worker now and then does not."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.coordinator.failures import FAILURES_IN_A_ROW, GOOD_LEASE_S, LEAST_S, LONGEST_REST_S, Failures
from remuda.coordinator.leases import Lease
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import CollectorWork, Worker, World
from remuda.training.snapshot import FailuresSnapshot, LeaseHolder

ABORTED = "signal 6 (SIGABRT)"


def lease_of(worker: str, ready_s: float = math.inf) -> Lease:
    lease = Lease(LeaseHolder(1, worker, 0, "collector", "host", 1), 0, 0)
    lease.ready_s = ready_s
    return lease


class Leases:
    """Leases of one role, one after the other."""

    def __init__(self) -> None:
        self.failures, self.now_s = Failures(), 0.0

    def live(self, seconds: float, *, how: str = ABORTED, worker: str = "w") -> str | None:
        """A lease whose worker hands in work every second and then dies; returns the end that follows."""
        lease = lease_of(worker, self.now_s)
        for _ in range(int(seconds)):
            self.now_s += 1.0
            lease.worked_s = self.now_s
            self.failures.worked(worker, lease)
        self.now_s += 1.0
        self.failures.died(lease, how, self.now_s)
        self.now_s += 1.0
        return self.failures.hopeless_deaths(self.now_s)


def test_work_of_short_leases_does_not_excuse_their_deaths() -> None:
    leases = Leases()
    ends = [leases.live(5.0) for _ in range(FAILURES_IN_A_ROW)]
    assert ends[:-1] == [None] * (FAILURES_IN_A_ROW - 1)
    assert ends[-1] is not None
    assert (
        f"5 deaths of collectors in a row, none of which had worked for 30 s; the last: {ABORTED} (5 times)" in ends[-1]
    )
    assert "(env.vectorization: async)" in ends[-1], "what would contain an environment that crashes"


def test_deaths_on_one_bad_machine_do_not_count_while_others_of_the_role_work() -> None:
    leases = Leases()
    steady = lease_of("steady", -GOOD_LEASE_S)
    for _ in range(3 * FAILURES_IN_A_ROW):
        assert leases.live(2.0) is None
        steady.worked_s = leases.now_s
        leases.failures.worked("steady", steady)


def test_many_that_die_at_the_same_moment_may_have_one_passing_cause() -> None:
    failures = Failures()
    for number in range(64):
        failures.died(lease_of(f"w{number}"), ABORTED, 100.0)
    assert failures.hopeless_deaths(100.0) is None
    assert failures.rest(100.0) == (LEAST_S, 64)
    failures.died(lease_of("w64"), ABORTED, 100.0 + LEAST_S)
    assert failures.hopeless_deaths(100.0 + LEAST_S) is not None


def test_a_worker_that_was_lost_may_say_later_how_it_ended() -> None:
    leases = Leases()
    for number in range(FAILURES_IN_A_ROW - 1):
        leases.live(1.0, how="lost, silent for 10.1 s", worker=f"w{number}")
        leases.failures.explained(f"w{number}", ABORTED)
    end = leases.live(1.0, how="lost, silent for 10.2 s")
    assert end is not None
    assert f"{ABORTED} (4 times), lost, silent for 10.2 s" in end


def test_a_lease_that_was_taken_up_and_whose_worker_died_with_the_coordinator_does_not_count() -> None:
    failures = Failures()
    for number in range(FAILURES_IN_A_ROW):
        lease = lease_of(f"w{number}", 0.0)
        lease.recovered = True
        failures.died(lease, "lost", 10.0 + number)
    assert failures.hopeless_deaths(20.0) is None


def collector_of(world: World) -> Worker:
    return world.of("collector")[0]


def let_it_abort(world: World, pause_s: float) -> None:
    """The collector dies again and again, each time with chunks handed in; its nanny sees how and starts it again."""
    dead_until_s: float | None = None
    for _ in range(4_000):
        world.step()
        worker = collector_of(world)
        if dead_until_s is not None and world.now_s >= dead_until_s:
            world.restart(worker, former_exit=ABORTED)
            dead_until_s = None
        elif worker.alive and isinstance(worker.work, CollectorWork) and worker.work.taken > 300:
            world.kill(worker)
            dead_until_s = world.now_s + pause_s
        if world.experiment().state == "failed":
            return


@pytest.mark.parametrize("pause_s", [1.0, 15.0], ids=["started again at once", "lost first"])
def test_a_run_whose_environment_aborts_fails_and_the_next_one_is_served(pause_s: float) -> None:
    """It hands in chunks in each of its incarnations, and is learned from."""
    world = World(config(collector={"count": 1}, stop={"max_env_steps": 10**9})).started(collectors=1, name="bad")
    let_it_abort(world, pause_s)
    status = world.experiment()
    assert status.state == "failed", status
    assert f"{ABORTED} (" in (status.reason or "")
    assert status.env_step > 1_000
    assert status.train_iter > 0
    world.config = config(collector={"count": 1}, stop={"max_env_steps": 1_200})
    world.submit("good")
    world.restart(collector_of(world))
    world.run()
    assert world.experiment(1).state == "finished"


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
