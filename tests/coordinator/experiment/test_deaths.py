"""Deaths under a lease: a run that kills its workers fails, and one that loses a worker now and then does not."""

from __future__ import annotations

import math

import pytest

from remuda.coordinator.failures import FAILURES_IN_A_ROW, GOOD_LEASE_S, LEAST_S, Failures
from remuda.coordinator.leases import Lease
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import CollectorWork, Worker, World
from remuda.training.snapshot import LeaseHolder

ABORTED = "signal 6 (SIGABRT)"


def lease_of(worker: str, ready_s: float = math.inf) -> Lease:
    lease = Lease(LeaseHolder(1, worker, 0, "collector", "host", 1), 0)
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
