"""What a coordinator measures of itself agrees, at every moment of a run, with what `status` shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from remuda.coordinator.disk.disk import Disk
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.measuring import SAY_INTERVAL_S, WINDOW_S, Measuring, TurnWatch
from remuda.coordinator.monitoring.snapshot import RunMeasures, Snapshot
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.wire.messages import CoordinatorLoad, RefusalCounts

WATCH = TurnWatch(lambda text: None)


class Scene:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.worked_s = 0.0
        self.said: list[str] = []
        self.watch = TurnWatch(self.said.append, lambda: self.now_s, lambda: self.worked_s)

    def turn(self, *, decide_s: float = 0.0, answer_s: float = 0.0) -> None:
        self.watch.begin()
        for name, took_s in (("decide", decide_s), ("answer", answer_s)):
            self.now_s += took_s
            self.watch.part(name)
        self.watch.end()


def test_a_long_turn_is_said_with_what_took_it_and_how_much_of_it_was_work() -> None:
    scene = Scene()
    scene.watch.begin()
    scene.now_s, scene.worked_s = 0.3, 0.01
    scene.watch.part("decide")
    scene.now_s = 0.31
    scene.watch.part("answer")
    scene.watch.end()
    assert scene.said == [
        "a turn of the coordinator's loop took 0.310 s (0.010 s of processor time): 0.300 s to decide"
    ]


def test_many_long_turns_are_said_as_one_line_now_and_then_that_names_the_longest() -> None:
    scene = Scene()
    for decide_s in (0.06, 0.5, 0.07):
        scene.turn(decide_s=decide_s)
    assert len(scene.said) == 1, "the first at once"
    scene.now_s += SAY_INTERVAL_S
    scene.turn()
    assert len(scene.said) == 2
    assert "took 0.500 s" in scene.said[1]
    scene.now_s += SAY_INTERVAL_S
    scene.turn()
    assert len(scene.said) == 2


def test_the_longest_turn_of_the_last_minute_is_forgotten_and_the_longest_ever_is_not() -> None:
    scene = Scene()
    scene.turn(decide_s=2.0)
    for _ in range(2 * int(WINDOW_S)):
        scene.now_s += 1.0
        scene.turn(decide_s=0.001)
    assert round(scene.watch.longest_s, 6) == 0.001
    assert scene.watch.longest_ever_s == 2.0
    assert len(scene.watch._buckets) <= 14, "memory that does not grow"  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(RunFolders(tmp_path), None, lambda: None)


def measured(world: World, disk: Disk) -> Snapshot:
    load = CoordinatorLoad(descriptors=5, descriptor_limit=9)
    return Measuring(world.coordinator, disk, WATCH)(load, RefusalCounts(no_key=3), 4)


def test_workers_and_runs_are_those_of_the_status(disk: Disk) -> None:
    world = World(config()).started()
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
