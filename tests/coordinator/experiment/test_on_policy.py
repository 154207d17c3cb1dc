"""On-policy runs in the state machine: each segment used once, in order, and none older than the lag allows."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.tests.coordinator.configs import on_policy_config
from remuda.tests.coordinator.simulation import Faults, World


def finished(world: World) -> None:
    world.run(3_000)
    status = world.experiment()
    assert status.state == "finished", status.reason
    assert status.env_step == world.unique_env_steps()
    rows = np.concatenate([rows for _, _, rows in world.used])
    assert len(set(rows.tolist())) == len(rows), "a row was used twice"


def lags(world: World) -> set[int]:
    """By how many versions the policy that collected a row was older than the one it improved."""
    return {
        version - world.collected[row].version
        for epoch, version, rows in world.used
        for row in rows.tolist()
        if world.collected[row].epoch == epoch
    }


@pytest.mark.parametrize("seed", range(2))
def test_strictly_on_policy_every_update_uses_what_the_policy_it_improves_has_collected(seed: int) -> None:
    world = World(on_policy_config(lag=0), seed=seed, faults=Faults(repeat=0.2 * seed, delay_s=0.2 * seed)).started()
    finished(world)
    assert lags(world) == {0}
    assert all(len(rows) == 8 for _, _, rows in world.used)
    assert len(world.used) >= 4_000 // (8 * 16) - 1


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("batches", [1, 3])
def test_what_came_last_is_learned_from_too(batches: int, lag: int) -> None:
    """Of a budget of one batch nothing was learned."""
    batch = 8 * 16
    world = World(on_policy_config(lag=lag, stop={"max_env_steps": batches * batch})).started()
    finished(world)
    assert len(world.used) == world.unique_env_steps() // batch == batches
    assert max(world.records) == world.experiment().train_iter, "the last checkpoint is of the last update"
    assert world.logged("not learned from") == []


def test_batches_that_nobody_learns_from_are_named_at_the_end() -> None:
    """A learner that comes no further holds one of them, and the others were not drawn."""
    world = World(on_policy_config(lag=2, stop={"max_env_steps": 3 * 8 * 16 - 30}))
    world.updates_per_step = 0
    world.herd(collectors=2)
    world.submit()
    world.run(3_000)
    assert world.experiment().state == "finished"
    assert world.logged("not learned from") == ["batches that were collected and not learned from: 3"]
