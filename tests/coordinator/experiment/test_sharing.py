"""Sharing a herd over time: who runs lends what it can spare to who waits, and it comes to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.coordinator.experiment.workers import may_be_overtaken
from remuda.coordinator.scheduler import Demand, Holding, Plan, Preempt, Return, plan
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.wire.messages import Role

ROLES: tuple[Role, ...] = ("learner", "collector", "evaluator")
"""Those without which an experiment cannot begin."""


@dataclass
class Job:
    """An experiment that is nothing but what it holds."""

    name: str
    priority: int
    order: int
    minimum: dict[Role, int]
    wanted: dict[Role, int]
    started: bool = False
    held: dict[int, Role] = field(default_factory=dict[int, Role])
    leaving: set[int] = field(default_factory=set[int])

    def staying(self, role: Role) -> list[int]:
        return [lease for lease, held in self.held.items() if held == role and lease not in self.leaving]

    def demand(self) -> Demand | None:
        held = Counter(self.held.values())
        missing: dict[Role, int] = {role: self.wanted[role] - held[role] for role in ROLES}
        lacking: dict[Role, int] = {
            role: min(max(self.minimum[role] - len(self.staying(role)), 0), missing[role]) for role in ROLES
        }
        if not any(missing.values()):
            return None
        return Demand(self.name, self.priority, self.order, lacking, missing, started=self.started)

    def holding(self) -> Holding:
        surplus: dict[Role, int] = {role: max(len(self.staying(role)) - self.minimum[role], 0) for role in ROLES}
        leaving: Counter[Role] = Counter(self.held[lease] for lease in self.leaving)
        return Holding(self.name, self.name, self.priority, self.order, surplus, leaving)


class Herd:
    """Applies plans; a worker is the number of its lease, or free."""

    def __init__(self, counts: dict[Role, int]) -> None:
        self.counts = counts
        self.free: dict[Role, list[str]] = {
            role: [f"{role}{n}" for n in range(count)] for role, count in counts.items()
        }
        self.jobs: list[Job] = []
        self.leases = 0
        self.returns = 0
        self.workers: dict[int, str] = {}

    def round(self) -> Plan:
        demands = [demand for job in self.jobs if (demand := job.demand()) is not None]
        decided = plan(demands, self.free, [job.holding() for job in self.jobs if job.started], self.counts)
        before = {job.name: Counter(job.held.values()) for job in self.jobs}
        jobs = {job.name: job for job in self.jobs}
        for grant in decided.grants:
            self.free[grant.role].remove(grant.worker)  # raises where it was dealt twice
            self.leases += 1
            self.workers[self.leases] = grant.worker
            jobs[grant.experiment].held[self.leases] = grant.role
        for job in self.jobs:
            got = Counter(job.held.values()) - before[job.name]
            if not job.started and got:
                assert all(got[role] >= job.minimum[role] for role in ROLES), "less than the minimum"
                job.started = True
            assert job.started or job.name in decided.waiting, "nobody says why it waits"
            assert all(Counter(job.held.values())[role] <= job.wanted[role] for role in ROLES)
        for lent in decided.returns:
            holder, waiting = jobs[lent.holder], jobs[lent.waiting]
            assert holder.priority <= waiting.priority
            holder.leaving.update(holder.staying(lent.role)[-lent.count :])
            assert all(len(holder.staying(role)) >= holder.minimum[role] for role in ROLES), "lends of its minimum"
            self.returns += lent.count
        return decided

    def let_go(self, job: Job, lease: int) -> None:
        self.free[job.held.pop(lease)].append(self.workers.pop(lease))
        job.leaving.discard(lease)

    def drain(self, *, at_most: int = 10**9) -> None:
        for job in self.jobs:
            for lease in sorted(job.leaving)[:at_most]:
                self.let_go(job, lease)

    def end(self, job: Job) -> None:
        for lease in list(job.held):
            self.let_go(job, lease)
        self.jobs.remove(job)

    def settle(self) -> int:
        """Until nothing more is decided; returns how many rounds that took."""
        for rounds in range(50):
            decided = self.round()
            if not decided.grants and not decided.returns and not any(job.leaving for job in self.jobs):
                return rounds
            self.drain(at_most=1)
        raise AssertionError("it never comes to rest")


JOBS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2), st.integers(-1, 1)), max_size=7)
HERDS = st.tuples(st.integers(0, 4), st.integers(0, 10), st.integers(0, 5))


def jobs_of(wishes: list[tuple[int, int, int, int]]) -> list[Job]:
    return [
        Job(
            f"x{order}",
            priority,
            order,
            {"learner": 1, "collector": least, "evaluator": 1},
            {"learner": 1, "collector": least + more, "evaluator": 1 + evaluates},
        )
        for order, (least, more, evaluates, priority) in enumerate(wishes)
    ]


def herd_of(counts: tuple[int, int, int]) -> Herd:
    return Herd(dict(zip(ROLES, counts, strict=True)))


@given(wishes=JOBS, counts=HERDS)
def test_sharing_comes_to_rest(wishes: list[tuple[int, int, int, int]], counts: tuple[int, int, int]) -> None:
    herd = herd_of(counts)
    for job in jobs_of(wishes):
        herd.jobs.append(job)
        herd.settle()
        waiting = [job for job in herd.jobs if not job.started]
        # at rest, whoever waits could not be helped by all that others of no higher priority could spare
        for first in sorted(waiting, key=lambda j: (-j.priority, j.order))[:1]:
            lenders = [job for job in herd.jobs if job.started and job.priority <= first.priority]
            spare = {
                role: len(herd.free[role]) + sum(len(job.staying(role)) - job.minimum[role] for job in lenders)
                for role in ROLES
            }
            assert any(spare[role] < first.minimum[role] for role in ROLES), f"{first} need not wait"
    assert herd.returns <= sum(sum(job.minimum.values()) for job in herd.jobs)


@given(wishes=JOBS, counts=HERDS, data=st.data())
def test_nobody_starves(
    wishes: list[tuple[int, int, int, int]], counts: tuple[int, int, int], data: st.DataObject
) -> None:
    """Small ones keep coming; whoever fits in the herd and was there before them starts all the same."""
    herd = herd_of(counts)
    herd.jobs = jobs_of(wishes)
    patient = [job for job in herd.jobs if all(job.minimum[role] <= herd.counts[role] for role in ROLES)]
    for turn in range(40):
        herd.settle()
        if all(job.started for job in patient):
            return
        running = [job for job in herd.jobs if job.started]
        assert running, "somebody waits, and nobody runs"
        herd.end(data.draw(st.sampled_from(sorted(running, key=lambda job: job.order))))
        one: dict[Role, int] = {"learner": 1, "collector": 1, "evaluator": 1}
        herd.jobs.append(Job(f"late{turn}", -1, 100 + turn, one, one))
    raise AssertionError(f"starved: {[job for job in patient if not job.started]}")


def demand(name: str, order: int, collectors: int = 1, **changes: object) -> Demand:
    minimum: dict[Role, int] = {"learner": 1, "collector": collectors, "evaluator": 1}
    return Demand(name, 0, order, minimum, minimum, **changes)  # type: ignore[arg-type]


def test_the_one_that_has_most_to_spare_lends_and_the_waiting_one_says_so() -> None:
    free: dict[Role, list[str]] = {"learner": ["l"], "collector": [], "evaluator": ["e"]}
    little = Holding("a", "little", 0, 0, {"collector": 1})
    much = Holding("b", "much", 0, 1, {"collector": 3})
    decided = plan([demand("c", 2)], free, [little, much], {"learner": 3, "collector": 6, "evaluator": 3})
    assert decided.returns == (Return("b", "collector", 1, "c"),)
    assert decided.waiting == {"c": "waits for 1 collector (0 free, 1 coming back from much)"}


def test_what_is_not_enough_for_one_that_waits_goes_to_one_that_can_begin() -> None:
    """It was kept for the first one for as long as that waited, which may be days."""
    free: dict[Role, list[str]] = {"learner": ["l1", "l2"], "collector": list("abcde"), "evaluator": ["e1", "e2"]}
    herd: dict[Role, int] = {"learner": 3, "collector": 10, "evaluator": 3}
    decided = plan([demand("big", 0, collectors=10, yields=True), demand("small", 1)], free, [], herd)
    assert {grant.experiment for grant in decided.grants} == {"small"}
    way_out = "it begins when these are free, or at once with `remuda worker collector --count 5`"
    assert decided.waiting == {"big": f"waits for 10 collectors (5 free); {way_out}"}


def test_a_later_one_begins_with_what_those_before_it_leave() -> None:
    free: dict[Role, list[str]] = {"learner": [], "collector": list("abcde"), "evaluator": ["e"]}
    minima: list[dict[Role, int]] = [{"learner": 1, "collector": 3}, {"collector": 2}, {"collector": 1}]
    demands = [Demand(f"x{order}", 0, order, minimum, minimum) for order, minimum in enumerate(minima)]
    decided = plan(demands, free, [], {"learner": 1, "collector": 5})
    assert [(grant.experiment, grant.worker) for grant in decided.grants] == [("x1", "a"), ("x1", "b")]
    assert decided.waiting == {
        "x0": "waits for 1 learner (0 free); it begins when these are free, or at once with `remuda worker learner`",
        "x2": "waits for 1 collector (3 free, kept for those before it)",
    }


def test_nobody_is_asked_for_workers_where_the_herd_is_too_small() -> None:
    free: dict[Role, list[str]] = {"learner": [], "collector": [], "evaluator": ["e"]}
    spare = Holding("a", "a", 0, 0, {"learner": 1, "collector": 1}, preemptible={"learner": 1, "collector": 1})
    urgent = Demand("b", 1, 1, {"learner": 1, "collector": 2}, {"learner": 1, "collector": 2})
    judging = Demand("c", 0, 2, {"evaluator": 1}, {"evaluator": 1})
    wants: dict[Role, int] = {**urgent.minimum, "evaluator": 1}
    decided = plan(
        [replace(urgent, minimum=wants, wanted=wants), judging], free, [spare], {**spare.surplus, "evaluator": 1}
    )
    assert (decided.returns, decided.preemptions) == ((), ())
    assert [grant.experiment for grant in decided.grants] == ["c"], "the free evaluator is kept for nobody"


def test_a_worker_on_the_way_back_serves_one_experiment_and_the_rest_is_lent() -> None:
    free: dict[Role, list[str]] = {"learner": ["l1", "l2"], "collector": [], "evaluator": ["e1", "e2"]}
    lender = Holding("a", "a", 0, 0, {"collector": 5}, {"collector": 1})
    herd: dict[Role, int] = {"learner": 3, "collector": 8, "evaluator": 3}
    decided = plan([demand("b", 1, collectors=2), demand("c", 2)], free, [lender], herd)
    assert decided.returns == (Return("a", "collector", 1, "b"), Return("a", "collector", 1, "c"))


FULL: dict[Role, int] = {"learner": 1, "collector": 2, "evaluator": 1}
HERD: dict[Role, int] = {"learner": 3, "collector": 6, "evaluator": 3}


def runs(name: str, order: int, *, priority: int = 0, surplus: int = 0) -> Holding:
    """A preemptible run with two collectors."""
    return Holding(name, name, priority, order, {"collector": surplus}, preemptible=FULL)


def urgent(name: str, order: int, *, priority: int = 1, **changes: object) -> Demand:
    return Demand(name, priority, order, FULL, FULL, **changes)  # type: ignore[arg-type]


def test_the_last_run_of_the_lowest_priority_is_preempted_alone() -> None:
    decided = plan([urgent("x", 3)], {}, [runs("a", 0), runs("b", 1), runs("c", 2, priority=-1)], HERD)
    assert decided.preemptions == (Preempt("c", "x"),)
    both = plan([urgent("x", 3), urgent("y", 4)], {}, [runs("a", 0), runs("b", 1)], HERD)
    assert both.preemptions == (Preempt("b", "x"), Preempt("a", "y"))


def test_a_preempted_run_is_not_asked_for_its_spare_workers_as_well() -> None:
    decided = plan([urgent("x", 1)], {}, [runs("a", 0, surplus=1)], HERD)
    assert (decided.preemptions, decided.returns) == ((Preempt("a", "x"),), ())


def test_a_run_that_gives_one_of_the_missing_roles_is_preempted_with_others() -> None:
    learns = Holding("a", "a", 0, 0, {}, preemptible={"learner": 1})
    collects = Holding("b", "b", 0, 1, {}, preemptible={"collector": 2, "evaluator": 1})
    decided = plan([urgent("x", 2)], {}, [learns, collects], HERD)
    assert decided.preemptions == (Preempt("b", "x"), Preempt("a", "x"))


def test_workers_on_the_way_back_are_not_preempted_as_well() -> None:
    lender = Holding("a", "a", 2, 0, {}, {"collector": 1})
    small = Holding("b", "b", 0, 1, {}, preemptible={"learner": 1, "collector": 1, "evaluator": 1})
    assert plan([urgent("x", 2)], {}, [lender, small], HERD).preemptions == (Preempt("b", "x"),)


def test_who_may_not_preempt_waits() -> None:
    for waiting in (urgent("x", 1, priority=0), urgent("x", 1, patient=True), urgent("x", 1, preempts=False)):
        assert plan([waiting], {}, [runs("a", 0)], HERD).preemptions == (), waiting


@given(runs_s=st.integers(10, 900), collectors=st.integers(2, 6), free_at_first=st.integers(0, 3))
@settings(max_examples=20)
def test_one_that_needs_many_begins_among_small_ones(runs_s: int, collectors: int, free_at_first: int) -> None:
    """Each of them takes so many seconds; there are always more of them waiting."""
    ends_s = [10 * number % runs_s for number in range(collectors - min(free_at_first, collectors))]
    idle_s, step_s = 0, 5
    for now_s in range(0, 8 * max(runs_s, 60) + 180, step_s):
        ends_s = [end_s for end_s in ends_s if end_s > now_s]
        free = {"collector": [f"c{number}" for number in range(collectors - len(ends_s))]}
        big = Demand("big", 0, 0, {"collector": collectors}, {"collector": collectors}, yields=may_be_overtaken(now_s))
        small = [Demand(f"s{n}", 0, 1 + n, {"collector": 1}, {"collector": 1}) for n in range(collectors)]
        decided = plan([big, *small], free, herd={"collector": collectors})  # type: ignore[arg-type]
        if any(grant.experiment == "big" for grant in decided.grants):
            assert idle_s <= max(now_s / 2, step_s)
            return
        ends_s += [now_s + runs_s] * len(decided.grants)
        idle_s += step_s if len(ends_s) < collectors else 0
    raise AssertionError("it is overtaken again and again")


def collectors_of(world: World, position: int) -> int:
    id = world.experiment(position).id
    return sum(worker.experiment == id and worker.role == "collector" for worker in world.status().workers)


def test_a_running_experiment_lends_a_collector_and_gets_it_back_without_losing_a_step() -> None:
    world = World(config(collector={"count": 3, "chunk_env_steps": 64}, stop={"max_env_steps": 3_000})).started(
        collectors=3, evaluators=2, learners=2, name="first"
    )
    while world.unique_env_steps() < 500:
        world.step()
    assert collectors_of(world, 0) == 3
    world.submit("second")
    while world.experiment(1).state != "running" if len(world.status().experiments) > 1 else True:
        world.step()
    assert (collectors_of(world, 0), collectors_of(world, 1)) == (2, 1)
    assert world.experiment(0).waiting_for == "runs with 2 of 3 collectors"
    lent = world.logged("goes back to the herd: second waits for a collector")
    waited = [text for _, text in world.said if text.startswith("waits for 1 collector (0 free")]
    assert len(lent) == len(waited) == 1
    world.run(3_000)
    for position in range(2):
        status = world.experiment(position)
        assert (status.state, status.env_step) == ("finished", world.unique_env_steps(status.id))
