"""Runs of a sweep are submitted once each and followed, over lost answers and a coordinator that forgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from remuda.client.client import Client
from remuda.client.sweeps.grid import read_grid
from remuda.client.sweeps.herd import HerdRuns
from remuda.client.sweeps.plan import Task, plan, tasks
from remuda.storage.run_folder import RunFolder
from remuda.tests.client.statuses import status
from remuda.tests.client.sweeps.grids import SHORT, write_grid
from remuda.tests.page.folders import say, write_checkpoints
from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import CoordinatorStatus, ExperimentStatus, Status, Submitted

COORDINATOR = CoordinatorStatus("cccccccc-0000-4000-8000-000000000001", "tcp://127.0.0.1:1", 1, 0.0, 1)


class Scripted:
    """A coordinator, as a client sees it. `trouble` is called before each submission is accepted, and after it."""

    def __init__(self, trouble: Callable[[str], None]) -> None:
        self.accepted: list[ExperimentStatus] = []
        self._trouble = trouble

    def status(self) -> Status:
        return Status(COORDINATOR, [], list(self.accepted))

    def submit(self, config: object, *, name: str, run_dir: Path, experiment: str, **others: Any) -> Submitted:
        self._trouble("before")
        if experiment not in {one.id for one in self.accepted}:
            self.accepted.append(status(id=experiment, name=name, run_dir=str(run_dir), state="queued"))
        self._trouble("after")
        return Submitted(experiment, str(run_dir))

    def stop(self, experiment: str) -> None:
        self._trouble(experiment)


@pytest.fixture
def todo(tmp_path: Path) -> Sequence[Task]:
    grid = write_grid(tmp_path / "user", {**SHORT, "policy.n_step": [1, 2, 3]})
    _, found = tasks(plan(read_grid(grid), tmp_path), {}, "parallel")
    return found


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
def test_no_answer_is_waited_for_and_nothing_submitted_twice(todo: Sequence[Task], when: str, adopt: bool) -> None:
    """Also by a sweep that starts over."""
    errors: list[Exception] = [UnreachableError("silent"), ConnectionFileError("no file")]

    def trouble(now: str) -> None:
        if now == when and errors:
            raise errors.pop()

    coordinator, waits = Scripted(trouble), list[float]()
    begun = [*HerdRuns(cast("Client", coordinator), adopt=adopt, sleep=waits.append).begin(todo)]
    assert [record.experiment for record in begun] == [one.id for one in coordinator.accepted]
    assert [one.name for one in coordinator.accepted] == [task.run.name for task in todo]
    assert {record.state for record in begun} == {"queued"}
    assert len(waits) == 2, "once for each error"


def test_runs_of_a_trial_that_is_given_up_are_stopped_and_no_other(todo: Sequence[Task]) -> None:
    heard: list[str] = []
    herd = HerdRuns(cast("Client", Scripted(heard.append)), sleep=lambda wait_s: None)
    begun = [*herd.begin(todo)]
    heard.clear()
    herd.stop_runs([begun[1].name])
    assert heard == [begun[1].experiment]


def test_a_run_that_the_coordinator_has_forgotten_ended_as_its_folder_tells(todo: Sequence[Task]) -> None:
    """A coordinator keeps the last runs to end: more may end while the sweep's machine sleeps."""
    coordinator = Scripted(lambda when: None)
    herd = HerdRuns(cast("Client", coordinator), sleep=lambda wait_s: None)
    assert len([*herd.begin(todo)]) == 3
    coordinator.accepted.clear()
    folder = RunFolder(todo[0].run.run_dir)
    folder.ckpt.mkdir(parents=True)
    write_checkpoints(folder, [9.0, 100.0, 50.0])
    say(folder.commander_log, "the run is over after 180.0 s: max_env_steps; env_step 160 has reached max_env_steps 60")
    ended, *lost = herd.poll()
    assert (ended.state, ended.reason, ended.env_step, ended.train_iter) == ("finished", "max_env_steps", 160, 20)
    assert (ended.last_return, ended.best_return, ended.wall_s) == (50.0, 100.0, 3.0)
    assert [each.state for each in lost] == ["failed", "failed"]
