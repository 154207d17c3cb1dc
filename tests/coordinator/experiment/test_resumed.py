"""The pure cores of a resumed run: they go on with what its checkpoint had, and repeat nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import EvaluatorConfig, LogConfig, StopConfig
from remuda.training.commander.commander import Commander, Save
from remuda.training.commander.end import End
from remuda.training.commander.evaluation import EvaluationResult
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.resume_point import ResumePoint
from remuda.wire.messages import CheckpointRecord, ChunkId, ChunkMeta, Counters, PolicyRef

BEST = CheckpointRecord(100, 1_000, 5.0, 80.0, "iteration_100.pth.tar", "0" * 64, "now")
LAST = CheckpointRecord(250, 2_500, 12.0, 50.0, "iteration_250.pth.tar", "0" * 64, "now")
COUNTERS = Counters(env_step=2_500, train_iter=250, episode=30, policy_version=25, wall_s=12.0)


def resumed(**changes: Any) -> ResumePoint:
    given: dict[str, Any] = {
        "record": LAST, "counters": COUNTERS, "policy": PolicyRef(3, 25, 250), "best": BEST, "progress_rows": 6,
    }  # fmt: skip
    return ResumePoint(**(given | changes))


def config(**stop: Any) -> ExperimentConfig:
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
    commander = Commander(config(), resumed())
    assert commander.started() == []
    assert commander.progressed(COUNTERS) == []
    assert commander.last_record == LAST


def test_boundaries_lie_beyond_the_checkpoint() -> None:
    commander = Commander(config(), resumed())
    commander.started()
    assert commander.progressed(structs.replace(COUNTERS, env_step=2_999, train_iter=260)) == []
    assert commander.progressed(structs.replace(COUNTERS, env_step=3_000, train_iter=260)) == [Save("evaluation")]


@pytest.mark.parametrize(("reward", "best"), [(79.0, False), (80.0, False), (81.0, True)])
def test_the_best_score_must_be_beaten(reward: float, best: bool) -> None:
    commander = Commander(config(), resumed())
    commander.started()
    outcome = commander.evaluated(EvaluationResult(structs.replace(LAST, train_iter=300), (reward,), (9,), 1.0))
    assert outcome.best is best
    assert commander.best is not None
    assert commander.best.reward_mean == max(reward, 80.0)


def test_the_final_evaluation_is_not_played_twice() -> None:
    commander = Commander(config(max_env_steps=2_500), resumed())
    commander.started()
    (end,) = commander.progressed(COUNTERS)
    assert isinstance(end, End)
    assert commander.save_final() == [Save("final")]
    assert commander.saved("final", LAST) == []
    assert commander.settled


def test_rows_of_progress_go_on_with_the_next_number_and_boundary() -> None:
    rows = ProgressRows(config(), resumed())
    assert rows.due(COUNTERS) == rows.last(COUNTERS) == []
    assert rows.due(structs.replace(COUNTERS, env_step=2_999)) == []
    (row,) = rows.due(structs.replace(COUNTERS, env_step=3_001))
    assert (row.epoch, row.env_step) == (6, 3_000)


def test_a_progress_file_that_is_gone_is_begun_without_row_0() -> None:
    (row,) = ProgressRows(config(), resumed(progress_rows=0)).due(structs.replace(COUNTERS, env_step=3_000))
    assert row.epoch == 1
