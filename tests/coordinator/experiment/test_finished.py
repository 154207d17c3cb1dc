"""What is over is still shown and answered for, and holds nothing any more."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from msgspec import structs

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import EvaluatorConfig, LogConfig, StopConfig
from remuda.coordinator import effects as fx
from remuda.coordinator.catalog import FINISHED_KEPT, Catalog
from remuda.coordinator.events import Received
from remuda.coordinator.experiment.experiment import Experiment
from remuda.tests.coordinator.configs import config, short_config
from remuda.tests.coordinator.simulation import Worker, World
from remuda.tests.keys import somebody_for
from remuda.training.commander.commander import Commander, Save
from remuda.training.commander.end import End
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.journal_entry import ResumePoint
from remuda.training.run_snapshot import FinishedRun
from remuda.wire.channel import Channel
from remuda.wire.messages import (
    AnyMessage,
    CheckpointRecord,
    ChunkAccepted,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    Counters,
    Done,
    LedgerCounts,
    LogRequest,
    LogText,
    PolicyRef,
    StopExperiment,
    Submit,
    Submitted,
)


def over(world: World) -> World:
    """With a run from its submission to its end."""
    world.herd(collectors=2)
    world.submit()
    world.run()
    return world


def said_to_the_client(world: World, question: AnyMessage) -> AnyMessage:
    before = len(world.replies)
    world.ask(question)
    while len(world.replies) == before:
        world.step()
    return world.replies[-1]


def test_the_newest_runs_are_kept_and_lost_ones_besides() -> None:
    """All runs of a year were kept in memory, and went out with each answer to `remuda status`."""
    [finished] = over(World(short_config())).coordinator.experiments
    assert isinstance(finished, FinishedRun)
    experiments = Catalog()

    def other(id: str, submitted: int, *, unrecoverable: bool = False) -> FinishedRun:
        identity = structs.replace(finished.identity, id=id, submitted=submitted)
        return structs.replace(finished, identity=identity, unrecoverable=unrecoverable)

    experiments.add_finished(other("lost", 5_000, unrecoverable=True))
    for number in range(FINISHED_KEPT + 20):
        experiments.add_finished(other(f"{number}", number))
    assert [each.identity.id for each in experiments] == ["lost", *map(str, range(20, FINISHED_KEPT + 20))]
    assert experiments.known.get("19") is None
    assert [experiments.next_submission() for _ in range(2)] == [5_001, 5_002], "above all earlier submissions"


def test_its_replay_is_let_go_and_status_stays() -> None:
    world = World(short_config()).started()
    world.step()
    [experiment] = world.coordinator.experiments
    assert isinstance(experiment, Experiment)
    gone = weakref.ref(experiment), weakref.ref(experiment.policies[0].replay)
    del experiment
    world.run()
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    [finished] = world.coordinator.experiments
    assert isinstance(finished, FinishedRun)
    assert finished.state == "finished"
    status = world.experiment()
    assert (status.reason, status.env_step) == ("max_env_steps", world.unique_env_steps())
    world.steps(200)
    assert world.experiment() == status


@pytest.mark.parametrize("restarted", [False, True])
def test_clients_are_answered_as_before(restarted: bool) -> None:
    world = over(World(short_config()))
    if restarted:
        world.crash()
    shown = world.experiment()
    log = said_to_the_client(world, LogRequest("x", "commander"))
    assert isinstance(log, LogText)
    assert log.over, "following it ends"
    assert isinstance(said_to_the_client(world, StopExperiment("x")), Done)
    assert world.experiment() == shown
    again = Submit("x", world.config.model_dump_json(), "/runs/x", experiment=shown.id)
    assert said_to_the_client(world, again) == Submitted(shown.id, "/runs/x")
    assert len(world.status().experiments) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_late_chunks_are_refused_and_count_for_nothing(restarted: bool) -> None:
    world = over(World(short_config()))
    if restarted:
        world.crash()
    collector = world.of("collector")[0]
    meta = ChunkMeta(ChunkId(collector.uuid, 1, 999), "late", 8, 8, 1, 0, PolicyRef(), 0.1, [], [])
    [send] = said_by_somebody(world, ChunkReady(collector.assignments[0], meta))
    assert isinstance(send, fx.Send)
    answer = send.envelope.message
    assert isinstance(answer, ChunkAccepted)
    assert answer.rejected == "the experiment is over (finished)"
    assert world.experiment().env_step == world.unique_env_steps()


def said_by_somebody(world: World, message: AnyMessage) -> list[fx.Effect]:
    """What a worker's message leads to that is not registered any more."""
    event = Received(b"somebody:1:sim", Channel().post(message, world.now_s), somebody_for(message))
    return world.coordinator.handle(event, world.now_s)


def busy_world(max_env_steps: int = 3_000) -> World:
    world = World(
        config(collector={"count": 2, "chunk_env_steps": 64}, stop={"max_env_steps": max_env_steps})
    ).started()
    while not (world.status().experiments and world.experiment().env_step):
        world.step()
    return world


def counts(world: World) -> LedgerCounts:
    found = world.experiment().ledger
    assert found is not None
    return found


def collector(world: World) -> Worker:
    return next(worker for worker in world.workers.values() if worker.role == "collector" and worker.lease)


def announce(world: World, worker: Worker, lease: int, meta: ChunkMeta) -> None:
    """In a message of its own, as one that is renewed after a restart."""
    while not worker.registered:
        world.step()
    worker.say(ChunkReady(lease, meta))
    for _ in range(100):  # five seconds: whoever was away is back
        world.step()


@pytest.mark.parametrize("crashes", [False, True])
def test_a_chunk_that_is_announced_again_is_a_repetition(crashes: bool) -> None:
    world = busy_world(max_env_steps=1_000_000)
    worker, lease = collector(world), collector(world).lease
    meta = world.write_chunk(worker, PolicyRef())
    announce(world, worker, lease, meta)
    for _ in range(3):
        before = counts(world).repeated
        announce(world, worker, lease, meta)
        now = counts(world)
        if crashes:
            assert now.repeated > before, "the collectors have repeated something, too"
            world.crash()
            assert counts(world) == now
        else:
            assert now.repeated == before + 1
    now = counts(world)
    assert (now.accepted, now.refused, now.lost_collectors) == (len(world.accepted), 0, 0)


BEST = CheckpointRecord(100, 1_000, 5.0, 80.0, "iteration_100.pth.tar", "0" * 64, "now")
LAST = CheckpointRecord(250, 2_500, 12.0, 50.0, "iteration_250.pth.tar", "0" * 64, "now")
COUNTERS = Counters(env_step=2_500, train_iter=250, episode=30, policy_version=25, wall_s=12.0)


def resumed(**changes: Any) -> ResumePoint:
    given: dict[str, Any] = {
        "record": LAST, "counters": COUNTERS, "policy": PolicyRef(3, 25, 250), "best": BEST, "progress_rows": 6,
    }  # fmt: skip
    return ResumePoint(**(given | changes))


def resumed_config(**stop: Any) -> ExperimentConfig:
    return ExperimentConfig(
        name="resumed",
        env=EnvConfig(id="CartPole-v1"),
        evaluator=EvaluatorConfig(interval_env_steps=1_000),
        log=LogConfig(progress_interval_env_steps=500),
        stop=StopConfig(**stop),
    )


def chunk(env_steps: int) -> ChunkMeta:
    name = ChunkId("00000000-0000-4000-8000-000000000001", 4, 0)
    return ChunkMeta(name, "f", env_steps, env_steps, 1, 0, PolicyRef(4), 0.1, [7.0], [5])


def test_a_evaluated_checkpoint_is_neither_saved_nor_evaluated_again() -> None:
    commander = Commander(resumed_config(), resumed())
    assert commander.started() == []
    assert commander.progressed(COUNTERS) == []
    assert commander.last_record == LAST


def test_boundaries_lie_beyond_the_checkpoint() -> None:
    commander = Commander(resumed_config(), resumed())
    commander.started()
    assert commander.progressed(structs.replace(COUNTERS, env_step=2_999, train_iter=260)) == []
    assert commander.progressed(structs.replace(COUNTERS, env_step=3_000, train_iter=260)) == [Save("evaluation")]


def test_the_final_evaluation_is_not_played_twice() -> None:
    commander = Commander(resumed_config(max_env_steps=2_500), resumed())
    commander.started()
    (end,) = commander.progressed(COUNTERS)
    assert isinstance(end, End)
    assert commander.save_final() == [Save("final")]
    assert commander.saved("final", LAST) == []
    assert commander.settled


def test_a_progress_file_that_is_gone_is_begun_without_row_0() -> None:
    (row,) = ProgressRows(resumed_config(), resumed(progress_rows=0)).due(structs.replace(COUNTERS, env_step=3_000))
    assert row.epoch == 1
