"""When checkpoints are saved and rows written: the boundaries, counted out for stretches of several lengths."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.training.commander.commander import Commander, EvaluateByTraining, Save
from remuda.wire.messages import CheckpointRecord, Counters


def config(**sections: Any) -> ExperimentConfig:
    settings: dict[str, Any] = {
        "name": "cadence",
        "env": {"id": "CartPole-v1"},
        "evaluator": {"episodes": 0, "interval_env_steps": 10**6},
        "stop": {"max_env_steps": 10**6},
    }
    return ExperimentConfig.model_validate(settings | sections)


def record(counters: Counters) -> CheckpointRecord:
    name = f"iteration_{counters.train_iter}.pth.tar"
    return CheckpointRecord(counters.train_iter, counters.env_step, counters.wall_s, None, name, "0" * 64, "now")


def begun(config: ExperimentConfig) -> Commander:
    """Its initial checkpoint is saved and, as nobody has played yet, not evaluated."""
    commander = Commander(config)
    commander.started()
    assert commander.saved("initial", record(Counters())) == [EvaluateByTraining(record(Counters()))]
    commander.not_evaluated()
    return commander


def saves(commander: Commander, moments: list[Counters]) -> list[Counters]:
    """At which of these moments a checkpoint is saved because of its interval."""
    saved: list[Counters] = []
    for counters in moments:
        if commander.progressed(counters) == [Save("interval")]:
            saved.append(counters)
            commander.saved("interval", record(counters))
    return saved


def stretches(*lengths: int, s: float = 0.0) -> list[Counters]:
    """The counters after each stretch of so many environment steps; an update and `s` seconds belong to each."""
    return [Counters(env_step=sum(lengths[:n]), train_iter=n, wall_s=n * s) for n in range(1, len(lengths) + 1)]


@pytest.mark.parametrize(
    ("length", "interval", "expected"),
    [
        (64, 100, [128, 256, 320, 448, 512]),  # the first end of a stretch at or after each multiple
        (250, 100, [250, 500, 750, 1_000]),  # several crossed at once: one
        (10, 10, [10, 20, 30]),
        (7, 1, [7, 14]),
    ],
)
def test_a_save_per_boundary_and_one_for_several_crossed(length: int, interval: int, expected: list[int]) -> None:
    moments = stretches(*[length] * (expected[-1] // length))
    commander = begun(config(checkpoint={"interval_env_steps": interval}))
    assert [counters.env_step for counters in saves(commander, moments)] == expected


def test_a_save_by_time_comes_so_long_after_whichever_save_was_the_last() -> None:
    commander = begun(config(checkpoint={"interval_env_steps": None, "interval_s": 60.0}))
    saved = saves(commander, stretches(*[10] * 20, s=25.0))
    assert [counters.wall_s for counters in saved] == [75.0, 150.0, 225.0, 300.0, 375.0, 450.0]


def test_by_steps_or_by_time_whichever_comes_first() -> None:
    commander = begun(config(checkpoint={"interval_env_steps": 100, "interval_s": 60.0}))
    slow, fast = stretches(*[10] * 7, s=25.0), [Counters(env_step=170, train_iter=8, wall_s=176.0)]
    assert [counters.env_step for counters in saves(commander, [*slow, *fast])] == [30, 60, 170]
    assert commander.progressed(Counters(env_step=170, train_iter=8, wall_s=300.0)) == [], "nothing was learned since"


def test_the_next_boundary_outlives_the_coordinator() -> None:
    settings = config(checkpoint={"interval_env_steps": None})
    again = Commander(settings)
    again.restore(begun(settings).snapshot())
    assert saves(again, stretches(*[10_000] * 5)) == []
    assert again.snapshot().next_checkpoint is None
