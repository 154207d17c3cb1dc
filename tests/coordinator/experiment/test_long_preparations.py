"""What takes minutes by its nature, building and saving, is dismissed after the run's own limits, and not before."""

from __future__ import annotations

import pytest

from remuda.coordinator.experiment.ending import STAGE_LONGEST_S
from remuda.coordinator.limits import Limits
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.wire.messages import Phase

LIMITS = Limits(lost_after_s=5.0, stuck_after_s=6.0, hopeless_after_s=8.0)


@pytest.mark.parametrize(("phase", "setting"), [("preparing", "prepare_s"), ("saving", "save_s")])
def test_a_worker_that_takes_too_long_is_dismissed_with_the_limit_that_it_broke(phase: Phase, setting: str) -> None:
    world = World(config(stop={"max_env_steps": 10**9}, limits={setting: 20.0}), limits=LIMITS).started()
    world.steps(60)
    slow = world.of("learner")[0]
    slow.phase, slow.activity, slow.hung = phase, f"{phase} for long", True
    begun_s = world.now_s
    while slow.alive:
        assert "stuck" not in {worker.state for worker in world.status().workers}
        assert world.now_s - begun_s < 25.0
        world.step()
    assert world.now_s - begun_s >= 20.0
    assert slow.refused == "dismissed"
    dismissed = f"{phase} for long for 20 s without progress, and limits.{setting} of its run allows 20 s"
    assert any(dismissed in text for _, text in world.said), world.said[-5:]


def test_the_end_of_a_run_waits_for_a_last_checkpoint_that_takes_long() -> None:
    """Longer than everything else may take there."""
    world = World(config(stop={"max_env_steps": 1_000}, limits={"save_s": 1_000.0}), limits=LIMITS).started(
        collectors=1
    )
    world.step()
    learner = world.of("learner")[0]
    world.until(lambda: world.experiment().state == "stopping")
    learner.phase, learner.hung, learner.deaf = "saving", True, True
    begun_s = world.now_s
    while world.now_s < begun_s + STAGE_LONGEST_S["settling"] + 100.0:
        world.beat_interval_s = 1.0
        world.step()
    assert learner.alive
    assert world.experiment().state == "stopping"
    learner.hung = learner.deaf = False
    world.run(100.0)
    assert world.experiment().state == "finished"
    assert max(world.records) == world.experiment().train_iter
