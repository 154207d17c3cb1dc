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
from remuda.coordinator.leases import Lease
from remuda.coordinator.scheduler import Demand, plan
from remuda.coordinator.shares import US_PER_HOUR, Active, Past, Shares
from remuda.tests.coordinator.configs import config, short_config
from remuda.tests.coordinator.simulation import DelayingWorld, Worker, World
from remuda.training.journal_entry import JournalEntry
from remuda.training.run_snapshot import FinishedRun, HourRow, Identity, MeterSnapshot
from remuda.wire.codec import Envelope, decode, encode
from remuda.wire.messages import (
    LARGEST_COUNT,
    Bill,
    BillKey,
    BillLine,
    BillRequest,
    Done,
    Quota,
    Ready,
    Role,
    SetQuota,
    Used,
    WorkerVitals,
)

WEEK_H = 168


class Leases:
    """Watches all leases from outside: begin and end by the clock of the world. The time between the last commit and a
    crash counts for a worker that comes back."""

    def __init__(self, world: World) -> None:
        self.world, self.crashes = world, 0
        self.committed: dict[str, float] = {}
        self.run_of: dict[int, str] = {}
        self.role_of: dict[int, Role] = {}
        self.began: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.lost: dict[int, float] = {}
        """Time between the last commit and the newest crash, until the next commit."""
        self.absent: dict[int, float] = {}
        """The same for earlier crashes, until the worker is back."""
        self.back = set[int]()
        """Workers seen again since the newest crash."""
        world.check, world.before_journal = self.look, self.note

    def note(self, entry: JournalEntry) -> None:
        self.look_at_crash()
        self.look_at_workers()
        self.committed[entry.experiment] = self.world.now_s
        for lease in [lease for lease in self.run_of if self.run_of[lease] == entry.experiment]:
            self.absent[lease] = self.absent.get(lease, 0.0) + self.lost.pop(lease, 0.0)
            if lease in self.back:
                self.absent[lease] = 0.0

    def look_at_crash(self) -> None:
        if self.world.crashes > self.crashes:
            self.crashes = self.world.crashes
            self.back.clear()
            since = {lease: self.committed[run.identity.id] for run in runs_of(self.world) for lease in leases_of(run)}
            self.lost = {lease: self.world.now_s - committed_s for lease, committed_s in since.items()}

    def look_at_workers(self) -> None:
        self.back |= {lease for lease, worker in self.world.coordinator.registry.holders.items() if worker.peer}

    def look(self) -> None:
        self.look_at_crash()
        self.look_at_workers()
        present = {number: (run, lease) for run in runs_of(self.world) for number, lease in leases_of(run).items()}
        for number, (run, lease) in present.items():
            self.run_of[number], self.role_of[number] = run.identity.id, lease.role
        for number in self.run_of:
            self.began.setdefault(number, self.world.now_s)
            if number in present:
                self.ended.pop(number, None)  # it had let go, and a killed coordinator did not journal that
            else:
                self.ended.setdefault(number, self.world.now_s)

    def seconds(self, experiment: str, times: Mapping[Role, int] | None = None) -> float:
        """Of all leases of a run that is over; `times` a number by role."""
        own = [lease for lease, run in self.run_of.items() if run == experiment]
        weights = {lease: 1 if times is None else times.get(self.role_of[lease], 0) for lease in own}
        return sum(
            weights[lease] * (self.ended[lease] - self.began[lease] - self.absent.get(lease, 0.0)) for lease in own
        )


def leases_of(run: Experiment) -> dict[int, Lease]:
    return run.leases.open_leases


def runs_of(world: World) -> list[Experiment]:
    return [run for run in world.coordinator.experiments if isinstance(run, Experiment)]


def has_let_go(world: World) -> bool:
    """True once the first run has no workers."""
    return any(run.identity.name == "x" and not len(run.leases) for run in runs_of(world))


def lines(world: World, by: BillKey) -> list[BillLine]:
    world.replies.clear()
    world.ask(BillRequest(by))
    world.until(lambda: any(isinstance(reply, Bill) for reply in world.replies))
    return next(reply.lines for reply in world.replies if isinstance(reply, Bill))


def total(found: list[BillLine]) -> Used:
    return sum((line.used for line in found), Used())


def kill_and_restart(world: World, rng: random.Random, dead: list[tuple[float, Worker]]) -> None:
    """Kill a worker. The next incarnation comes at once, or after the coordinator has missed the worker."""
    killed = rng.choice([worker for worker in world.workers.values() if worker.alive])
    world.kill(killed)
    dead.append((world.now_s + rng.choice([0.0, 1.2 * world.limits.lost_after_s]), killed))
    for due in [each for each in dead if each[0] <= world.now_s]:
        world.restart(due[1])
        dead.remove(due)


@pytest.mark.parametrize("seed", range(2))
def test_the_bill_of_a_week_is_equal_to_the_journals(seed: int) -> None:
    """Runs of three projects in a week of short hours; one project has GPUs. Coordinator, learners, collectors and
    evaluators are killed again and again, and started again."""
    world, rng = World(short_config(), seed=seed), random.Random(seed)
    world.hour_s, world.downtime_s = 0.1, 0.5
    leases = Leases(world)
    world.crash_at = lambda: rng.random() < 0.002
    world.herd(4, evaluators=2, learners=2)
    gpus: dict[str, dict[str, object]] = {
        "collector": {"chunk_env_steps": 16, "device": "cuda"},
        "learner": {"batch_size": 8, "prefetch_batches": 2, "device": "cuda", "ranks": 2},
    }
    begun_s, submitted, dead = world.now_s, 0, list[tuple[float, Worker]]()
    while world.now_s < begun_s + WEEK_H * world.hour_s or submitted < 4:
        if sum(not run.over for run in world.coordinator.experiments) < 2:
            project = submitted % 3
            world.config = short_config(project=f"p{project}", stop={"max_env_steps": 500}, **(gpus if project else {}))
            world.submit(f"run{submitted}")
            submitted += 1
        world.steps(10)
        if rng.random() < 0.4:
            kill_and_restart(world, rng, dead)
    world.crash_at = lambda: False
    for _, worker in dead:
        world.restart(worker)
    world.run()
    assert min(world.crashes, world.deaths) > 5
    by_run = lines(world, "run")
    assert len(by_run) == submitted
    assert len({line.day for line in lines(world, "day")}) >= 7
    for line in by_run:
        assert line.used.env_steps == world.unique_env_steps(line.experiment)
        chunks = [meta for chunk, meta in world.written.items() if chunk in world.accepted]
        own = [meta for meta in chunks if world.owner[meta.chunk] == line.experiment]
        assert line.used.payload_bytes == sum(meta.payload_bytes for meta in own)
        assert line.used.updates >= world.journal[line.experiment].recovered().snapshot.counters.train_iter
        has_gpus: dict[Role, int] = {} if line.project == "p0" else {"collector": 1, "learner": 2}
        assert line.used.worker_us / 1e6 == pytest.approx(leases.seconds(line.experiment), abs=1e-4)
        assert line.used.gpu_us / 1e6 == pytest.approx(leases.seconds(line.experiment, has_gpus), abs=1e-4)
    assert total(by_run).updates <= len(world.used)
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


def test_no_reported_processor_time_is_too_large_to_be_journaled_and_sent() -> None:
    world = World(short_config())
    world.herd(2, 1, 1)
    world.submit()
    world.until_env_step(50)
    for worker in world.workers.values():
        worker.say(WorkerVitals(worker.lease, elapsed_s=1.0, cpu_s=1e15, rss_bytes=0, blocks=[]))
    world.steps(20)
    assert world.experiment().used.cpu_us == LARGEST_COUNT
    assert decode(encode(Envelope(1, 0, 1, world.status()))).message == world.status()


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
def test_accounts_get_at_most_their_limit_and_runs_the_minimum(most: int, wishes: list[tuple[str, int, int]]) -> None:
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
    """Nothing counted is lost, no update either, and the bill has no time of the wait; also where the coordinator is
    killed again and again, from the order to hand in on."""
    inference = {"count": 1, "device": "cuda"}
    world = World(config(inference=inference, preemptible=True, stop={"max_env_steps": 9_000}))
    rng = random.Random(2)
    leases = Leases(world)
    world.add("inference", 0)
    world.started().until_env_step(800)
    world.crash_at = lambda: (
        dies and world.crashes < 6 and any("hands in" in text for _, text in world.said) and rng.random() < 0.2
    )
    world.config = config(inference=inference)
    world.submit("urgent", priority=5)
    world.until(lambda: has_let_go(world))
    assert max(world.records) == len(world.used)
    assert world.crashes == (6 if dies else 0)
    world.crash_at = lambda: dies and rng.random() < 0.001
    world.until(lambda: len(world.status().experiments) == 2 and world.experiment(1).state == "running")
    waiting = world.experiment(0)
    assert (waiting.state, waiting.env_step >= 800) == ("starting", True)
    assert "preempted by urgent" in (waiting.waiting_for or "")
    assert waiting.env_step == world.unique_env_steps(waiting.id)
    assert waiting.train_iter == max(world.records)
    world.until(lambda: world.experiment(1).state == "finished" and world.experiment(0).state == "running")
    assert world.experiment(0).train_iter >= waiting.train_iter
    assert world.experiment(0).wall_s < waiting.wall_s + 5.0
    world.run()
    assert world.experiment(0).state == "finished"
    used = world.experiment(0).used
    assert used.worker_us / 1e6 == pytest.approx(leases.seconds(waiting.id), abs=1e-4)
    assert used.gpu_us / 1e6 == pytest.approx(leases.seconds(waiting.id, {"inference": 1}), abs=1e-4)


class SlowWorld(DelayingWorld):
    """A world whose workers take long to prepare."""

    delayed = Ready


def test_a_learner_in_preparation_learns_nothing_while_its_run_hands_in() -> None:
    """Nothing would save its updates."""
    world = SlowWorld(config(preemptible=True, stop={"max_env_steps": 9_000})).started().until_env_step(800)
    world.restart(world.of("learner")[0])
    world.held, collectors = [], world.of("collector")
    for worker in collectors:
        worker.deaf = True
    world.until(lambda: runs_of(world)[0].leases.learner_of(0) is not None)
    world.submit("urgent", priority=5)
    world.until(lambda: "preempted by urgent" in (world.experiment(0).waiting_for or ""))
    updates, held, world.held = len(world.used), world.held, None
    for peer, envelope in held:
        world.to_coordinator(peer, envelope)
    world.steps(50)
    for worker in collectors:
        worker.deaf = False
    world.until(lambda: has_let_go(world))
    assert held
    assert len(world.used) == updates
