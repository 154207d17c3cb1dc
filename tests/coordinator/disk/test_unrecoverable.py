"""A run that cannot be taken up any more is shown with why, and nothing of it gets into another run."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from remuda.coordinator.disk.runs_folder import unrecoverable_run
from remuda.coordinator.service import LEASES_PER_START
from remuda.coordinator.state import Coordinator
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import CollectorWork, World
from remuda.training.journal_database import JournalDamagedError
from remuda.wire.messages import (
    CheckpointRecord,
    ChunkAccepted,
    ChunkReady,
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


def test_chunks_for_an_unrecoverable_run_are_not_counted_for_another_under_the_same_lease() -> None:
    """Leases of a coordinator that was started again have numbers of their own."""
    world = World(config()).started(collectors=1)
    world.until_env_step(300)
    collector = world.of("collector")[0]
    assert isinstance(collector.work, CollectorWork)
    id = str(UUID(int=9, version=4))
    world.coordinator = Coordinator(id=id, address="sim", pid=1, now_s=world.now_s, leases=LEASES_PER_START)
    world.coordinator.recover([LOST], world.now_s)
    old_lease = collector.lease
    world.submit("other")
    while not collector.lease > LEASES_PER_START:
        world.step()
    counted = world.experiment(1).env_step
    meta = world.write_chunk(collector, PolicyRef())
    refused: list[ChunkAccepted] = []
    world.noted = lambda effect: None
    work, handle = collector.work, collector.work.handle

    def note(message: object) -> None:
        if isinstance(message, ChunkAccepted) and message.chunk == meta.chunk:
            refused.append(message)
        handle(message)  # type: ignore[arg-type]

    work.handle = note  # type: ignore[method-assign]
    collector.say(ChunkReady(old_lease, meta))
    while not refused:
        world.step()
    assert refused[0].rejected == "no such lease"
    world.written.pop(meta.chunk)
    assert world.experiment(1).env_step >= counted
    assert world.experiment(1).env_step == world.unique_env_steps(world.experiment(1).id)


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
