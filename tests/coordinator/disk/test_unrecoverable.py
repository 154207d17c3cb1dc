"""A run that cannot be taken up any more is shown with why, and nothing of it gets into another run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.coordinator.disk.runs_folder import unrecoverable_run
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.training.journal_database import JournalDamagedError
from remuda.wire.messages import (
    CheckpointRecord,
    Done,
    LogRequest,
    LogText,
    PolicyRef,
    Rejected,
    Status,
    StatusRequest,
    StopExperiment,
)

ID = "eeeeeeee-0000-4000-8000-000000000001"
LOST = unrecoverable_run(ID, Path("/runs/x"), JournalDamagedError("it is gone"))


def world_with_an_unrecoverable_run() -> World:
    world = World(config())
    world.coordinator.recover([LOST], world.now_s)
    return world


def answer(world: World, question: object) -> object:
    before = len(world.replies)
    world.ask(question)  # type: ignore[arg-type]
    while len(world.replies) == before:
        world.step()
    return world.replies[-1]


@pytest.mark.parametrize("query", ["x", ID, "eeee"])
def test_it_is_shown_as_failed_and_can_be_asked_for(query: str) -> None:
    world = world_with_an_unrecoverable_run()
    status = answer(world, StatusRequest(query))
    assert isinstance(status, Status)
    [shown] = status.experiments
    assert (shown.id, shown.state, shown.reason) == (ID, "failed", LOST.last.reason)
    assert world.status().experiments == [shown]
    log = answer(world, LogRequest(query, "commander"))
    assert isinstance(log, LogText)
    assert log.over, "following it ends"
    assert isinstance(answer(world, StopExperiment(query)), Done)
    unknown = answer(world, StatusRequest("nobody"))
    assert isinstance(unknown, Rejected)
    assert "x (eeeeeeee)" in unknown.reason


def test_once_its_folder_is_resumed_it_is_not_shown_any_more() -> None:
    world = world_with_an_unrecoverable_run()
    world.herd(collectors=2)
    world.submit("other")
    world.step()
    assert [each.name for each in world.status().experiments] == ["x", "other"]
    world.submit("x")
    world.step()
    assert [each.name for each in world.status().experiments] == ["other", "x"]
    assert world.experiment(1).state != "failed"


def test_what_is_left_of_a_run_folder_tells_name_counters_and_where_to_resume(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.ckpt.mkdir()
    run.config_json.write_text(json.dumps({"name": "pole"}))
    checkpoints = CheckpointIndex(run.ckpt)
    run.checkpoint(7).touch()
    record = CheckpointRecord(7, 700, 9.5, None, "iteration_7.pth.tar", "0" * 64, "now", 3, PolicyRef(1, 4, 6))
    checkpoints.add(record)
    checkpoints.set_reward(7, 12.5, best=True)
    lost = unrecoverable_run(ID, tmp_path, JournalDamagedError("the journal is gone"))
    status = lost.status(0.0)
    assert (status.name, status.env_step, status.train_iter, status.episode) == ("pole", 700, 7, 3)
    assert (status.policy_version, status.last_return, status.best_return) == (4, 12.5, 12.5)
    assert status.reason == (
        f"{tmp_path} cannot be recovered: the journal is gone; to go on from iteration_7.pth.tar, type: "
        f"remuda submit --resume --run-dir {tmp_path}"
    )
