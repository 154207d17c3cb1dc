"""A league in the state machine: whoever dies, each game counts once, and pool, ratings and lineage stay."""

from __future__ import annotations

import random
from typing import Any

import pytest

from remuda.coordinator.experiment.experiment import Experiment
from remuda.tests.coordinator.experiment.test_team import team_config
from remuda.tests.coordinator.simulation import CollectorWork, Faults, Worker, World
from remuda.tests.faults.sizes import LONG
from remuda.training.effects import WriteLeague
from remuda.training.league import League, LeagueSnapshot

pytest.importorskip("openskill", reason="a league rates with openskill: pip install 'remuda[league]'")

POOL, EPISODES, MOST_DEATHS = 4, 8, 8
LEAGUE: dict[str, Any] = {
    "env": {"kind": "pettingzoo", "make": "game:make", "num_envs": 4, "agents": ["cross", "nought"]},
    "policies": {"fox": {"agents": ["*"]}, "hare": {"agents": ["*"]}},
    "self_play": {"share": 0.5, "league": {"pool": POOL, "exploiters": {"hare": {"reset_env_steps": 500}}}},
    "checkpoint": {"interval_env_steps": 150, "keep": 2},
    "evaluator": {"count": 2, "episodes": EPISODES, "interval_env_steps": 200},
}


def league_of(world: World) -> League:
    [run] = world.coordinator.experiments
    assert isinstance(run, Experiment)
    league = run.policies[0].dispatch.league
    assert league is not None
    return league


def is_continued(now: LeagueSnapshot, before: LeagueSnapshot) -> bool:
    """True if nothing of the lineage is lost, and no game."""
    return now.games >= before.games and now.resets[: len(before.resets)] == before.resets


@pytest.mark.parametrize("number", range(60 if LONG else 3))
def test_games_resets_and_opponents_are_exact_whoever_dies(number: int) -> None:
    """The coordinator between any two messages, and any worker at any turn, on a network that loses and repeats."""
    chance, left = random.Random(number), iter(range(MOST_DEATHS))
    faults = Faults(loss=0.03, repeat=0.1, delay_s=0.1) if number % 3 else Faults()
    world = World(team_config(**LEAGUE), faults=faults, seed=number)
    killed: list[tuple[float, Worker]] = []
    newest = LeagueSnapshot()

    def check() -> None:
        nonlocal newest
        if any(isinstance(run, Experiment) for run in world.coordinator.experiments):
            now = league_of(world).snapshot()
            assert is_continued(now, newest), "a league goes back"
            newest = now
        for due_s, victim in [*killed]:
            if due_s <= world.now_s:
                killed.remove((due_s, victim))
                world.restart(victim)
        alive = [worker for worker in world.workers.values() if worker.alive]
        if alive and chance.random() < 0.01 and next(left, None) is not None:
            victim = chance.choice(alive)
            world.kill(victim)
            killed.append((world.now_s + chance.choice((0.0, 0.4)), victim))

    world.started(learners=2)
    world.check = check
    world.crash_at = lambda: chance.random() < 0.003 and next(left, None) is not None
    world.run(1_000)

    assert world.experiment().env_step == world.unique_env_steps() >= 2_000
    assert world.crashes + world.deaths > 0
    played = {(one.policy_index, one.evaluation) for one in world.asked_to_play if any(one.older)}
    assert newest.games == EPISODES * len(played), "each game counts once"
    assert len(newest.pool) == POOL
    assert {member.policy for member in newest.pool} == {0, 1}
    first = world.checkpoints("hare")[0].record
    assert newest.resets, "the exploiter began again"
    assert {(one.policy, one.parent) for one in newest.resets} == {(1, first.file)}
    saved = {effect.record.train_iter for effect in world.checkpoints("hare")}
    assert {one.train_iter for one in newest.resets} <= saved


def test_collectors_are_told_the_opponents_that_are_in_force() -> None:
    """Those who join late, and those of a coordinator that was killed, as well."""
    world = World(team_config(**LEAGUE)).started(learners=2).until_env_step(900)

    def told() -> bool:
        works = [worker.work for worker in world.of("collector") if worker.alive]
        league = league_of(world)
        return bool(works) and all(
            isinstance(work, CollectorWork)
            and work.opponents is not None
            and work.opponents.weights == league.all_weights()
            and [[one.file for one in its] for its in work.opponents.pool]
            == [[one.file for one in its] for its in league.opponents]
            for work in works
        )

    world.until(told)
    before = league_of(world)
    written: list[WriteLeague] = []
    world.noted = lambda effect: written.append(effect) if isinstance(effect, WriteLeague) else None
    world.crash()
    assert [one.document for one in written] == [before.document()], "the file may have been older than the journal"
    world.restart(world.of("collector")[0])
    world.until(lambda: bool([*world.coordinator.experiments]) and told())
    assert is_continued(league_of(world).snapshot(), before.snapshot())
