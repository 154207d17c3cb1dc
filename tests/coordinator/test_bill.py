"""The bill: equal to the journals, whatever dies; quotas, and the order of the queue."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.coordinator.bill import bill, by_hour
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.journaling import recovered_run
from remuda.coordinator.scheduler import Demand, plan
from remuda.coordinator.shares import US_PER_HOUR, Active, Past, Shares
from remuda.tests.coordinator.configs import config, short_config
from remuda.tests.coordinator.simulation import World
from remuda.training.identity import Identity
from remuda.training.run_snapshot import FinishedRun
from remuda.training.snapshot import HourRow, MeterSnapshot
from remuda.wire.messages import Bill, BillKey, BillLine, BillRequest, Done, Quota, Role, SetQuota, Used

WEEK_H = 168


class Leases:
    """Watches all leases from outside: begin and end by the clock of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.run_of: dict[int, str] = {}
        self.began: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        world.check = self.look

    def look(self) -> None:
        runs = [run for run in self.world.coordinator.experiments if isinstance(run, Experiment)]
        present = {lease: run.identity.id for run in runs for lease in run.leases.open_leases}
        self.run_of |= present
        for lease in self.run_of:
            self.began.setdefault(lease, self.world.now_s)
            if lease in present:
                self.ended.pop(lease, None)  # it had let go, and a killed coordinator did not journal that
            else:
                self.ended.setdefault(lease, self.world.now_s)

    def seconds(self, experiment: str) -> float:
        own = [lease for lease, run in self.run_of.items() if run == experiment]
        return sum(self.ended[lease] - self.began[lease] for lease in own)


def lines(world: World, by: BillKey) -> list[BillLine]:
    world.replies.clear()
    world.ask(BillRequest(by))
    world.until(lambda: any(isinstance(reply, Bill) for reply in world.replies))
    return next(reply.lines for reply in world.replies if isinstance(reply, Bill))


def total(found: list[BillLine]) -> Used:
    return sum((line.used for line in found), Used())


def test_the_bill_of_a_week_is_equal_to_the_journals() -> None:
    """Runs of three projects in a week of short hours. The coordinator is killed and started again; workers work on."""
    world, rng = World(short_config(stop={"max_env_steps": 500})), random.Random(4)
    world.hour_s, world.downtime_s = 0.1, 0.5
    leases = Leases(world)
    world.crash_at = lambda: rng.random() < 0.002
    world.herd(4, evaluators=2, learners=2)
    begun_s, submitted = world.now_s, 0
    while world.now_s < begun_s + WEEK_H * world.hour_s or submitted < 4:
        if sum(not run.over for run in world.coordinator.experiments) < 2:
            world.config = short_config(stop={"max_env_steps": 500}, project=f"p{submitted % 3}")
            world.submit(f"run{submitted}")
            submitted += 1
        world.steps(10)
    world.crash_at = lambda: False
    world.run()
    assert world.crashes > 5
    by_run = lines(world, "run")
    assert len(by_run) == submitted
    assert len({line.day for line in lines(world, "day")}) >= 7
    for line in by_run:
        assert line.used.env_steps == world.unique_env_steps(line.experiment)
        chunks = [meta for chunk, meta in world.written.items() if chunk in world.accepted]
        own = [meta for meta in chunks if world.owner[meta.chunk] == line.experiment]
        assert line.used.payload_bytes == sum(meta.payload_bytes for meta in own)
        assert line.used.updates >= world.journal[line.experiment].recovered().snapshot.counters.train_iter
    seconds = [(line.used.worker_us / 1e6, leases.seconds(line.experiment)) for line in by_run]
    assert [counted for counted, _ in seconds] == pytest.approx([seen for _, seen in seconds], abs=1e-4)
    assert len(lines(world, "project")) == 3
    keys: tuple[BillKey, ...] = ("user", "project", "day")
    assert {total(by_run)} == {total(lines(world, by)) for by in keys}


@pytest.mark.parametrize("is_old", [False, True])
def test_the_clock_of_another_machine_bills_no_time_that_has_not_passed(is_old: bool) -> None:
    """A coordinator that moves to another machine finds a clock that has run since the boot of that machine. A journal
    of a version of Remuda without bills has no time to compare with."""
    world = World(config()).started().until_env_step(200)
    [journaled], year_s = world.journal.values(), 365 * 24 * 3_600.0
    found = journaled.recovered()
    if is_old:
        experiment = replace(found.snapshot.experiment, meter=MeterSnapshot())
        found = dataclasses.replace(found, snapshot=replace(found.snapshot, experiment=experiment))
    before = found.snapshot.experiment.meter
    run = recovered_run(found, world.now_s + year_s).experiment
    held = [*run.leases.open_leases]
    for lease in held:
        run.back(lease, world.now_s + year_s)
    most_us = 0 if is_old else len(held) * US_PER_HOUR
    assert 0 <= run.meter.used.worker_us - before.worker_us <= most_us


ALICE, BOB = (Identity(name, name, "/runs", "", 0, 0, user=name, project="p") for name in ("alice", "bob"))


def used(hours: float, env_steps: int = 0) -> Used:
    return Used(worker_us=round(hours * US_PER_HOUR), env_steps=env_steps)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["p", "q"]), st.integers(0, 10**15)), max_size=9)
)
def test_every_view_of_a_bill_has_the_same_sum(runs: list[tuple[str, str, int]]) -> None:
    items = [BillLine(user, project, f"r{i}", f"{i}", "d", 1, Used(us)) for i, (user, project, us) in enumerate(runs)]
    keys: tuple[BillKey, ...] = ("user", "project", "run", "day")
    assert {total(bill(items, by)) for by in keys} == {Used(sum(us for _, _, us in runs))}


def test_an_hour_is_the_difference_of_two_totals() -> None:
    rows = [HourRow(7, Used(10, env_steps=5)), HourRow(9, Used(10, env_steps=5)), HourRow(12, Used(30, env_steps=6))]
    assert by_hour(rows) == {7: Used(10, env_steps=5), 12: Used(20, env_steps=1)}


def test_half_of_the_use_is_forgotten_in_a_week_and_the_weight_divides_it() -> None:
    shares = Shares()
    shares.note(Past("alice", "", 1_000, used(8)))
    shares.set_quota(Quota("user/bob", weight=4.0))
    shares.read([Active(BOB, used(8), 3)], 1_000 + WEEK_H)
    assert shares.share_hours(ALICE) == pytest.approx(4.0)
    assert shares.share_hours(BOB) == pytest.approx(2.0)
    assert [(each.quota.account, each.workers) for each in shares.status()][-1] == ("user/bob", 3)


@pytest.mark.parametrize("quota", [Quota("user/alice", worker_hours=5.0), Quota("project/p", env_steps=100, days=7)])
def test_a_quota_used_up_says_when_the_run_may_begin_and_what_would_help(quota: Quota) -> None:
    shares = Shares()
    shares.set_quota(quota)
    shares.note(Past("alice", "p", 24, used(3, 60)))
    shares.read([Active(ALICE, used(1, 39), 2)], 30)
    assert shares.refusal(ALICE) is None
    shares.read([Active(ALICE, used(2, 40), 2)], 31)
    why = shares.refusal(ALICE) or ""
    assert quota.account in why
    assert "1970-01-09 00:00 UTC" in why  # a week after the first hours
    assert f"remuda quota set {quota.account} --" in why
    shares.read([], 24 + WEEK_H)
    assert shares.refusal(ALICE) is None


@given(
    most=st.integers(0, 8),
    wishes=st.lists(st.tuples(st.sampled_from(["user/a", "user/b"]), st.integers(1, 3), st.integers(0, 3)), max_size=6),
)
def test_no_account_gets_more_workers_than_its_limit_and_nobody_less_than_the_minimum(
    most: int, wishes: list[tuple[str, int, int]]
) -> None:
    demands = [
        Demand(
            f"{i}", 0, i, {"learner": 1, "collector": least}, {"learner": 1, "collector": least + more}, accounts=(a,)
        )
        for i, (a, least, more) in enumerate(wishes)
    ]
    free: Mapping[Role, list[str]] = {"learner": ["l1", "l2", "l3"], "collector": [f"c{i}" for i in range(9)]}
    decided = plan(demands, free, room={"user/a": (most, 1)})
    granted = [grant.experiment for grant in decided.grants]
    limited = {demand.experiment for demand in demands if demand.accounts == ("user/a",)}
    assert sum(experiment in limited for experiment in granted) <= max(most - 1, 0)
    for demand in demands:
        got = granted.count(demand.experiment)
        assert got == 0 if demand.experiment in decided.waiting else got >= sum(demand.minimum.values())


def test_the_account_with_less_use_is_served_first() -> None:
    heavy = Demand("heavy", 0, 0, {"learner": 1}, {"learner": 1}, share_hours=3.0)
    light = Demand("light", 0, 1, {"learner": 1}, {"learner": 1}, share_hours=2.0)
    free: Mapping[Role, list[str]] = {"learner": ["l"]}
    assert [grant.experiment for grant in plan([heavy, light], free).grants] == ["light"]


def test_a_quota_is_journaled_and_holds_back_a_run_until_it_is_raised() -> None:
    world = World(config(project="p")).started(collectors=4, evaluators=2, learners=2)
    world.until_env_step(200)
    world.ask(SetQuota(Quota("project/p", env_steps=100)))
    world.until(lambda: any(isinstance(reply, Done) for reply in world.replies))
    assert world.quotas["project/p"].env_steps == 100
    world.submit("second")
    world.until(lambda: "project/p has used" in (world.experiment(1).waiting_for or ""))
    world.until(lambda: world.experiment(0).state == "finished")
    world.steps(100)  # the steps of a run that is over still count
    assert world.experiment(1).state == "queued"
    world.ask(SetQuota(replace(world.quotas["project/p"], env_steps=10**9)))
    world.run()
    assert isinstance(world.coordinator.experiments.find("second"), FinishedRun)


@pytest.mark.parametrize("dies", [False, True])
def test_a_preemptible_run_hands_in_waits_and_continues(dies: bool) -> None:
    """Nothing counted is lost, no update either, and the bill has no time of the wait; whatever dies."""
    world, rng = (
        World(config(inference={"count": 1}, preemptible=True, stop={"max_env_steps": 9_000})),
        random.Random(2),
    )
    leases = Leases(world)
    world.add("inference", 0)
    world.started().until_env_step(800)
    world.crash_at = lambda: dies and rng.random() < 0.001
    world.config = config(inference={"count": 1})
    world.submit("urgent", priority=5)
    world.until(lambda: len(world.status().experiments) == 2 and world.experiment(1).state == "running")
    waiting = world.experiment(0)
    assert (waiting.state, waiting.env_step >= 800) == ("starting", True)
    assert "preempted by urgent" in (waiting.waiting_for or "")
    assert waiting.env_step == world.unique_env_steps(waiting.id)
    saved = max(world.records)
    world.until(lambda: world.experiment(1).state == "finished" and world.experiment(0).state == "running")
    assert world.experiment(0).train_iter >= waiting.train_iter == saved or dies
    assert world.experiment(0).wall_s < waiting.wall_s + 5.0
    world.run()
    assert world.experiment(0).state == "finished"
    assert world.experiment(0).used.worker_us / 1e6 == pytest.approx(leases.seconds(waiting.id), abs=1e-4)
