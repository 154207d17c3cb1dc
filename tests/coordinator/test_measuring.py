"""What a coordinator measures of itself agrees, at every moment of a run, with what `status` shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from remuda.coordinator.disk.disk import Disk
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.events import ShutdownRequested
from remuda.coordinator.measuring import Measuring
from remuda.coordinator.monitoring.snapshot import RunMeasures, Snapshot
from remuda.coordinator.turn_watch import TurnWatch
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.wire.messages import CoordinatorLoad, RefusalCounts

WATCH = TurnWatch(lambda text: None)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(RunFolders(tmp_path), None, lambda: None)


def measured(world: World, disk: Disk) -> Snapshot:
    load = CoordinatorLoad(descriptors=5, descriptor_limit=9)
    return Measuring(world.coordinator, disk, WATCH)(load, RefusalCounts(no_key=3), 4)


def test_workers_and_runs_are_those_of_the_status(disk: Disk) -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    seen: set[str] = set()
    while not world.status().experiments or world.experiment().state != "finished":
        world.step()
        status, snapshot = world.status(), measured(world, disk)
        states = Counter((worker.role, worker.state) for worker in status.workers)
        counts = {(role, state): n for role, each in snapshot.workers.items() for state, n in each.items() if n}
        assert counts == states
        assert [(run.experiment, run.env_step) for run in snapshot.runs] == [
            (experiment.id, experiment.env_step) for experiment in status.experiments
        ]
        seen |= {state for _, state in states}
    assert {"idle", "busy", "draining"} <= seen
    assert snapshot.runs == [RunMeasures.of(status) for status in world.status().experiments]


def test_what_the_loop_knows_of_itself(disk: Disk) -> None:
    snapshot = measured(World(config()), disk)
    assert (snapshot.descriptors, snapshot.descriptor_limit) == (5, 9)
    assert (snapshot.refusals.no_key, snapshot.malformed) == (3, 4)
    assert (snapshot.journal_lag_s, snapshot.held_up) == (0.0, 0)
    assert snapshot.rss_bytes > 1 << 20
    assert snapshot.workers["learner"] == {"idle": 0, "busy": 0, "stuck": 0, "draining": 0}


def test_it_drains_once_it_is_told_to_end(disk: Disk) -> None:
    world = World(config())
    assert not measured(world, disk).draining
    world.coordinator.handle(ShutdownRequested("enough"), world.now_s)
    assert measured(world, disk).draining
