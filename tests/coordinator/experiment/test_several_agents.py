"""Runs whose agents share a policy, in the state machine: a step counts once, and brings a row of each agent."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.config.schema import ExperimentConfig
from remuda.tests.coordinator.configs import config, on_policy_config
from remuda.tests.coordinator.simulation import Faults, World

AGENTS = ["a0", "a1", "a2"]
COPIES = 4
GAME = {"kind": "pettingzoo", "make": "game:make", "num_envs": COPIES, "agents": AGENTS}


def replayed(**sections: object) -> ExperimentConfig:
    return config(env=GAME, **sections)


def on_policy(lag: int = 0) -> ExperimentConfig:
    return on_policy_config(lag, env=GAME, stop={"max_env_steps": 1_500})


def finished(settings: ExperimentConfig, *, seed: int = 0, faults: Faults | None = None, dies: str = "") -> World:
    world = World(settings, seed=seed, faults=faults).started()
    if dies:
        while world.unique_env_steps() < 500:
            world.step()
        world.restart(next(worker for worker in world.workers.values() if worker.role == dies and worker.lease))
    world.run(4_000)
    assert world.experiment().state == "finished", world.experiment().reason
    assert world.experiment().env_step == world.unique_env_steps()
    return world


def test_rows_of_all_agents_are_sampled_as_often_as_asked_for() -> None:
    world = finished(replayed())
    rows = sum(meta.rows for meta in world.written.values())
    assert rows > 2.9 * world.experiment().env_step
    drawn = world.experiment().train_iter * 16
    assert drawn / (rows - 200) == pytest.approx(4.0, rel=0.15)


def test_collectors_are_held_back_by_rows_not_by_steps() -> None:
    """Nothing may be sampled before there are min_rows, which come from a third of so many steps."""
    capacity = {"capacity": 3_000, "min_rows": 200, "samples_per_insert": 1.0}
    world = World(replayed(buffer=capacity, stop={"max_env_steps": 3_000}))
    world.updates_per_step = 0  # the learner does nothing
    world.herd(collectors=2)
    world.submit()
    world.steps(300)
    rows = sum(meta.rows for meta in world.written.values())
    chunk, in_flight = 3 * (64 + 7), 3 * 4 * 16
    assert 200 <= rows <= 200 + in_flight + 2 * (3 * 64 + 3 * COPIES) + 3 * chunk


@pytest.mark.parametrize("dies", ["collector", "learner"])
def test_on_policy_an_update_has_a_segment_of_each_agent_of_all_copies_of_all_collectors(dies: str) -> None:
    world = finished(on_policy(), dies=dies)
    assert {len(rows) for _, _, rows in world.used} == {2 * COPIES * len(AGENTS)}
    used = np.concatenate([rows for _, _, rows in world.used])
    assert len(set(used.tolist())) == len(used), "each once"
    stale = [
        row
        for epoch, version, rows in world.used
        for row in rows.tolist()
        if (world.collected[row].epoch, world.collected[row].version) != (epoch, version)
        and world.collected[row].epoch == epoch
    ]
    assert stale == [], "strictly on-policy"
