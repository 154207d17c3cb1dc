"""A journal whose last moments a power failure took, and workers on other machines that have seen them."""

from __future__ import annotations

import copy

import pytest

from remuda.tests.coordinator.configs import config, on_policy_config
from remuda.tests.coordinator.simulation import World


@pytest.mark.parametrize("lost_env_steps", [1, 300, 900])
@pytest.mark.parametrize("on_policy", [False, True])
def test_workers_that_have_seen_more_than_the_journal_begin_anew_and_the_run_goes_on(
    on_policy: bool, lost_env_steps: int
) -> None:
    """Else collectors have gone further than they would ever be let again, an evaluator takes another evaluation for
    the one that it has played, and a learner holds other rows than those that get their numbers."""
    world = World(on_policy_config(0) if on_policy else config()).started()
    world.until_env_step(700)
    before = copy.deepcopy(world.journal)
    while world.experiment().env_step < 700 + lost_env_steps:
        world.step()
    seen = [worker.lease for worker in world.workers.values()]
    world.lose_power(before)
    world.run(600)
    status = world.experiment()
    assert status.state == "finished", status.reason
    assert status.env_step >= world.config.stop.max_env_steps
    for worker, lease in zip(world.workers.values(), seen, strict=True):
        assert worker.alive
        assert worker.assignments[0] == lease
        assert len(worker.assignments) == 2
    gone = world.logged("is gone: the coordinator does not know all it did")
    assert len(gone) == len(seen)


def test_after_a_crash_on_the_same_machine_nobody_begins_anew() -> None:
    world = World(config()).started()
    world.until_env_step(700)
    world.crash()
    world.run(600)
    assert world.experiment().env_step == world.unique_env_steps()
    assert all(len(worker.assignments) == 1 for worker in world.workers.values())
