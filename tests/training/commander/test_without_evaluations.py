"""evaluator.episodes 0: the newest training episodes say what is best and when to stop."""

from __future__ import annotations

from typing import Any

from remuda.config.schema import ExperimentConfig
from remuda.logbook.episode_reports import EvaluationReport
from remuda.tests.coordinator import configs
from remuda.tests.coordinator.simulation import World
from remuda.training.commander.progress_rows import ProgressRows
from remuda.wire.messages import CheckpointRecord, ChunkId, ChunkMeta, PolicyRef

UUID = "00000000-0000-4000-8000-000000000001"


def config(*, window: int = 3, **sections: Any) -> ExperimentConfig:
    evaluator = {"episodes": 0, "interval_env_steps": 500, "window_episodes": window}
    return configs.config(**{"evaluator": evaluator, "checkpoint": {"interval_env_steps": None}, **sections})


def chunk(sequence: int, *returns: float) -> ChunkMeta:
    lengths = [10 * (1 + n) for n in range(len(returns))]
    return ChunkMeta(ChunkId(UUID, 1, sequence), "f", 64, 64, 1, 0, PolicyRef(), 0.1, list(returns), lengths)


def record(env_step: int) -> CheckpointRecord:
    return CheckpointRecord(env_step // 10, env_step, 1.0, None, f"iteration_{env_step // 10}.pth.tar", "0" * 64, "now")


def test_the_newest_episodes_evaluate_once_there_are_enough() -> None:
    rows = ProgressRows(config(window=3))
    rows.chunk(chunk(0, 1.0, 2.0))
    assert rows.evaluated_by_training(record(500)) is None
    rows.chunk(chunk(1, 6.0, 10.0))
    evaluated = rows.evaluated_by_training(record(500))
    assert evaluated is not None
    assert (evaluated.returns, evaluated.lengths) == ((2.0, 6.0, 10.0), (20, 10, 20))
    assert evaluated.reward_mean == 6.0
    again = ProgressRows(config(window=3))
    again.restore(rows.snapshot())
    restarted = again.evaluated_by_training(record(500))
    assert restarted is not None
    assert restarted.returns == evaluated.returns


def test_a_run_in_parallel_needs_no_evaluator_and_knows_its_best() -> None:
    world = World(config(window=3))
    world.herd(collectors=2, evaluators=0)
    world.submit()
    world.step()
    assert "evaluator" not in (world.experiment().waiting_for or "")
    world.run(3_000)
    status = world.experiment()
    assert (status.state, status.reason) == ("finished", "max_env_steps")
    assert [report for report in world.reports if isinstance(report, EvaluationReport)] == []
    evaluated = {iteration for iteration, (reward, _) in world.rewards.items() if 64.0 <= reward <= 71.0}
    assert evaluated == set(world.records) - {0}, "at every 500 steps and at the end"
    assert status.best_return == max(reward for reward, _ in world.rewards.values())
    assert [row.epoch for row in world.progress] == list(range(len(world.progress)))
    assert world.progress[0].env_step == 300
    said = [text for _, text in world.said if "newest 3 training episodes" in text]
    assert len(said) == len(evaluated)
    assert "(the best so far)" in said[0]
