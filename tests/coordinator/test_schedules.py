"""Whole experiments in which anybody may die between any two messages: thousands of schedules, each run to its end with
every invariant checked after every turn of the coordinator.

Each schedule has a number, which is its seed: `run_schedule(number)` plays it again. Some run by default, more
than ten thousand with `make faults`, which go through every point of every kind of run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.config.workers import InferenceConfig
from remuda.coordinator.failures import FAILURES_IN_A_ROW
from remuda.coordinator.settings import Limits
from remuda.tests.coordinator.configs import short_config, short_on_policy_config
from remuda.tests.coordinator.invariants import Invariants
from remuda.tests.coordinator.simulation import Faults, Worker, World
from remuda.wire.messages import Role, StopExperiment

SHORT, ALL, SLICES = 16, 12_000, 24
POINTS = 550
"""More than any of these runs has where the coordinator may die, if nothing else happens."""
MOST_CHANCES = 6
"""Deaths by chance in one schedule, of the coordinator and of workers; those that are planned come on top."""

CONFIGS = {
    "replay": short_config(),
    "prioritized": short_config(buffer={"capacity": 120, "min_rows": 32, "prioritized": True}),
    "lag 0": short_on_policy_config(lag=0),
    "lag 2": short_on_policy_config(lag=2),
}


@dataclass
class Plan:
    """What happens in one schedule. Points are those where the coordinator's process may die, turns are its turns."""

    config: ExperimentConfig
    experiments: int = 1
    herd: tuple[int, int, int] = (2, 1, 1)
    """Collectors, evaluators, learners."""
    faults: Faults = field(default_factory=Faults)
    turn_messages: int = 1
    downtime_s: float = 0.3
    crash_points: frozenset[int] = frozenset()
    crash_chance: float = 0.0
    killed: tuple[tuple[int, str, float], ...] = ()
    """Turn, role, and after how long its nanny restarts it (at infinity: a fresh worker comes in its place)."""
    kill_chance: float = 0.0
    lag_chance: float = 0.0
    """That a run's disk does not take a turn yet, for each of them at each look."""
    stop_turn: int | None = None
    stop_now: bool = False


def plan_of(number: int) -> Plan:
    """Every kind of trouble in turn; within each, the number moves on through its points (and then starts over, with
    other sizes of chunks)."""
    chance = random.Random(number)
    kind, place = number % 8, number // 8
    config = CONFIGS[list(CONFIGS)[place % 4]]
    point, role = place // 4, chance.choice(("collector", "learner", "evaluator"))
    back_s = chance.choice((0.0, 0.0, 0.4, float("inf")))
    late = Plan(config, faults=Faults(delay_s=chance.choice((0.0, 0.1))), turn_messages=chance.choice((1, 1, 4)))
    match kind:
        case 0 | 1:  # the coordinator, at every point
            late.crash_points = frozenset({(2 * point + kind) % POINTS})
        case 2:  # a worker, at every turn
            late.killed = ((point % 250, role, back_s),)
        case 3:  # a worker, and the coordinator at about the same time, or while it recovers
            turn = point % 200
            late.killed = ((turn, role, back_s),)
            late.crash_points = frozenset({turn + chance.randrange(-20, 60), turn + chance.randrange(0, 200)})
        case 4:  # everybody, again and again, on a bad network, and at times with disks that lag behind
            late.faults = Faults(loss=0.05, repeat=0.1, delay_s=0.2)
            late.lag_chance = chance.choice((0.0, 0.5))
            late.crash_chance, late.kill_chance = 0.003, 0.002
        case 5:  # several experiments on one herd, each with a disk of its own
            late.lag_chance = chance.choice((0.0, 0.5, 0.9))
            late.experiments, late.herd = 3, chance.choice(((3, 2, 2), (2, 1, 1), (5, 2, 3)))
            late.crash_chance, late.kill_chance = 0.002, 0.001
        case 6:  # two deaths of the coordinator, the second perhaps while it recovers
            late.crash_points = frozenset({point % 350, point % 350 + chance.randrange(1, 80)})
            late.downtime_s = chance.choice((0.05, 0.3, 1.0))
        case _:  # a client stops it
            late.stop_turn, late.stop_now = point % 200, chance.random() < 0.5
            late.crash_points = frozenset({late.stop_turn + chance.randrange(0, 60)})
            late.kill_chance = 0.001
    return late


@dataclass(frozen=True)
class Tally:
    """What schedules came to."""

    schedules: int = 0
    checks: int = 0
    """Turns of the coordinator after which every invariant held."""
    coordinator_deaths: int = 0
    worker_deaths: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.schedules + other.schedules,
            self.checks + other.checks,
            self.coordinator_deaths + other.coordinator_deaths,
            self.worker_deaths + other.worker_deaths,
        )


def with_reanalyzers(plan: Plan) -> Plan:
    """The same troubles in a run whose rows are computed again, for one of its reanalyzers in place of an evaluator."""
    policy = {"type": "muzero", "reanalyze_ratio": 1.0, "unroll_steps": 1, "n_step": 1}
    buffer = {"capacity": 120, "min_rows": 32, "samples_per_insert": 8.0}
    plan.config = short_config(policy=policy, buffer=buffer, reanalyzer={"count": 2})
    plan.killed = tuple((turn, role.replace("evaluator", "reanalyzer"), back_s) for turn, role, back_s in plan.killed)
    return plan


def with_inference(plan: Plan) -> Plan:
    """The same troubles in a run with shared inference, for an inference worker in place of an evaluator."""
    plan.config = plan.config.model_copy(update={"inference": InferenceConfig(count=2)})
    plan.killed = tuple((turn, role.replace("evaluator", "inference"), back_s) for turn, role, back_s in plan.killed)
    return plan


def run_schedule(number: int, *, reanalyzers: int = 0, inference: int = 0) -> Tally:
    """Play it to its end."""
    plan, chance = plan_of(number), random.Random(number + 1)
    if reanalyzers:
        plan = with_reanalyzers(plan)
    if inference:
        plan = with_inference(plan)
    limits = Limits(lost_after_s=2.0)
    world = World(plan.config, seed=number, faults=plan.faults, limits=limits, turn_messages=plan.turn_messages)
    invariants = Invariants(world)
    world.downtime_s, world.beat_interval_s = plan.downtime_s, 0.25
    world.crash_at = crashes(plan, chance)
    disk = random.Random(number + 2)
    world.lags = lambda experiment: disk.random() < plan.lag_chance
    world.check = trouble(plan, world, invariants, chance)
    world.herd(*plan.herd, reanalyzers=reanalyzers, inference=inference)
    for position in range(plan.experiments):
        world.submit(f"x{position}")
    run(world, plan.experiments)
    invariants.finish()
    for status in world.status().experiments:
        ends = ("finished", "stopped") if plan.stop_turn is not None else ("finished",)
        assert status.state in ends, status.reason
        assert status.state == "stopped" or status.env_step >= 240
        assert status.reanalyzed_rows <= sum(meta.rows for meta in world.reanalyses.values())
    assert world.made or not reanalyzers or plan.stop_turn is not None, "learners used what was computed again"
    assert world.answered or not inference or plan.stop_turn is not None, "collectors have asked for actions"
    return Tally(1, invariants.checks, world.crashes, world.deaths)


def run(world: World, experiments: int) -> None:
    """Until as many experiments are over, and whoever they let go of has heard so."""
    end_s = world.now_s + 600.0
    while len(world.closed) < experiments and world.now_s < end_s:
        world.step()
        known = list(world.coordinator.experiments)
        if len(known) == experiments and all(experiment.over for experiment in known):
            return
    raise AssertionError(f"not over: {world.status().experiments}; said: {world.said[-10:]}")


def crashes(plan: Plan, chance: random.Random) -> Callable[[], bool]:
    passed, left = iter(range(10**9)), iter(range(MOST_CHANCES))

    def now() -> bool:
        by_chance = chance.random() < plan.crash_chance and next(left, None) is not None
        return next(passed) in plan.crash_points or by_chance

    return now


def trouble(plan: Plan, world: World, invariants: Invariants, chance: random.Random) -> Callable[[], None]:
    """Check, then kill whom the plan kills in this turn; nannies and clients do their part."""
    turns, left = iter(range(10**9)), iter(range(MOST_CHANCES))
    killed = Counter[Role]()
    returning: list[tuple[float, Worker]] = []

    def kill(victim: Worker, back_s: float) -> None:
        killed[victim.role] += 1
        if back_s == float("inf"):
            world.kill(victim)
            world.add(victim.role, 100 + len(world.workers))
        else:
            world.kill(victim)
            returning.append((world.now_s + back_s, victim))

    def check() -> None:
        invariants.check()
        turn = next(turns)
        for due_s, victim in [*returning]:
            if due_s <= world.now_s:
                returning.remove((due_s, victim))
                world.restart(victim)
        alive = [worker for worker in world.workers.values() if worker.alive]
        for when, role, back_s in plan.killed:
            victims = [worker for worker in alive if worker.role == role]
            if when == turn and victims:
                kill(chance.choice(victims), back_s)
        mortal = [each for each in alive if killed[each.role] < FAILURES_IN_A_ROW - 1]  # one more ends a run, rightly
        if mortal and chance.random() < plan.kill_chance and next(left, None) is not None:
            kill(chance.choice(mortal), chance.choice((0.0, 0.4)))
        if turn == plan.stop_turn:
            world.ask(StopExperiment("x0", now=plan.stop_now))

    return check


def play(numbers: range, *, reanalyzers: int = 0, inference: int = 0) -> Tally:
    """Run schedules; one that fails says which it was."""
    tally = Tally()
    for number in numbers:
        try:
            tally += run_schedule(number, reanalyzers=reanalyzers, inference=inference)
        except BaseException as error:
            error.add_note(f"schedule {number}: {plan_of(number)}")
            raise
    print(tally)
    return tally


def assert_disturbed(tally: Tally, schedules: int) -> None:
    """All of them came to their end, and they were no quiet ones."""
    assert tally.schedules == schedules
    assert tally.checks >= 100 * schedules
    assert tally.coordinator_deaths >= schedules / 2
    assert tally.worker_deaths >= schedules / 4


@pytest.mark.parametrize("part", range(4))
def test_anybody_may_die_between_any_two_messages(part: int) -> None:
    assert_disturbed(play(range(part * SHORT // 4 * 29, (part + 1) * SHORT // 4 * 29, 29)), SHORT // 4)


def test_anybody_may_die_while_rows_are_computed_again() -> None:
    assert_disturbed(play(range(116, 174, 29), reanalyzers=2), 2)


def test_anybody_may_die_with_shared_inference() -> None:
    assert_disturbed(play(range(58, 174, 29), inference=2), 4)


@pytest.mark.parametrize("number", [5_852, 7_277, 7_813, 2_157, 5_228, 5_860])
def test_schedules_that_failed_once(number: int) -> None:
    """The first left a collector without credit: a message that a coordinator had sent ahead of its welcome was taken
    for one of the next coordinator. In the others the test was wrong: 2157 and 5228 killed one role five times, which
    ends a run; 5860 ended with the newest checkpoint in a single turn."""
    assert play(range(number, number + 1)).schedules == 1


@pytest.mark.parametrize("kind", CONFIGS)
def test_all_schedules_together_leave_no_point_of_a_run_out(kind: str) -> None:
    """Wherever the coordinator may die in this kind of run, it does so in one of them."""
    plans = map(plan_of, range(ALL))
    died = {point for plan in plans if plan.config is CONFIGS[kind] for point in plan.crash_points}
    assert died >= set(range(points_of(CONFIGS[kind])))


def points_of(config: ExperimentConfig) -> int:
    """Of a run in which nothing happens."""
    world, passed = World(config, limits=Limits(lost_after_s=2.0)), iter(range(10**9))
    world.beat_interval_s = 0.25
    world.crash_at = lambda: next(passed) < 0
    world.herd(2, 1, 1)
    world.submit("x0")
    run(world, 1)
    return next(passed)


@pytest.mark.faults_long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("part", range(SLICES))
def test_ten_thousand_schedules(part: int) -> None:
    assert_disturbed(play(range(part * ALL // SLICES, (part + 1) * ALL // SLICES)), ALL // SLICES)
