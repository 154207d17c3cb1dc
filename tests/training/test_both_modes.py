"""The rules of a run are the same in both modes: the same settings end it in the same state, with the same records and
lines.

Serial mode runs for real. The parallel mode is the real state machine in simulation, with scripted workers, so the
numbers differ between the two, and what is promised of them does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.logbook.reports import EventReport
from remuda.logbook.series import Event, read_series
from remuda.runner.serial import Start, run
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.coordinator.simulation import World
from remuda.tests.runner.runs import Flag, Ticking
from remuda.wire.messages import CheckpointRecord, ExperimentStatus, StopExperiment

CHUNK_ENV_STEPS = 16
COLLECTORS = NUM_ENVS = 2
SECTIONS: dict[str, dict[str, Any]] = {
    "env": {"id": "CartPole-v1", "num_envs": NUM_ENVS, "vectorization": "sync"},
    "policy": {"type": "dqn", "hidden": [8]},
    "learner": {"batch_size": 8, "prefetch_batches": 2},
    "collector": {"count": COLLECTORS, "chunk_env_steps": CHUNK_ENV_STEPS},
    "evaluator": {"count": 1, "episodes": 2, "interval_env_steps": 90, "max_episode_steps": 500},
    "buffer": {"capacity": 200, "min_rows": 32, "samples_per_insert": 2.0},
    "checkpoint": {"interval_env_steps": 70, "keep": 0},
    "log": {"progress_interval_env_steps": 50},
    "stop": {"max_env_steps": 240},
}


def config(**sections: dict[str, Any]) -> ExperimentConfig:
    changed = {name: {**SECTIONS[name], **section} for name, section in sections.items()}
    return ExperimentConfig.model_validate({"name": "x", **SECTIONS, **changed})


@dataclass(frozen=True)
class Ended:
    """What a run has left behind."""

    status: ExperimentStatus
    records: Mapping[int, CheckpointRecord]
    """By train_iter."""
    rewards: Mapping[int, float]
    """By train_iter."""
    events: tuple[str, ...]
    """Kinds, in order."""
    log: str
    """What the commander said."""


def serial(config: ExperimentConfig, tmp_path: Path, *, stopped: bool) -> Ended:
    seen: list[ExperimentStatus] = []
    stop = Flag(looks=60) if stopped else Flag()
    result = run(config, Start(tmp_path / "run"), stop=stop, on_progress=seen.append, clock=Ticking())
    folder = RunFolder(result.run_dir)
    records = {record.train_iter: record for record in CheckpointIndex(folder.ckpt).records}
    return Ended(
        seen[-1],
        records,
        {train_iter: record.reward for train_iter, record in records.items() if record.reward is not None},
        tuple(moment.event for moment in read_series(folder.series) if isinstance(moment, Event)),
        folder.serial_evaluator_log.read_text(),
    )


def parallel(config: ExperimentConfig, tmp_path: Path, *, stopped: bool) -> Ended:
    world = World(config)
    world.herd(collectors=COLLECTORS)
    world.submit()
    if stopped:
        while not world.accepted:
            world.step()
        world.ask(StopExperiment("x"))
    world.run()
    return Ended(
        world.experiment(),
        world.records,
        {train_iter: reward for train_iter, (reward, _) in world.rewards.items()},
        tuple(report.kind for report in world.reports if isinstance(report, EventReport)),
        "\n".join(text for experiment, text in world.said if experiment is not None),
    )


Mode = Callable[..., Ended]
both_modes = pytest.mark.parametrize("mode", [serial, parallel])


@both_modes
@pytest.mark.parametrize(
    ("sections", "reason", "state"),
    [
        ({"stop": {"max_train_iters": 7}}, "max_train_iters", "finished"),
        ({"stop": {"stop_value": 1.0}}, "stop_value", "finished"),
    ],
)
def test_a_run_that_has_done_what_it_was_for_is_finished(
    mode: Mode, sections: dict[str, Any], reason: str, state: str, tmp_path: Path
) -> None:
    ended = mode(config(**sections), tmp_path, stopped=False)
    assert (ended.status.reason, ended.status.state, ended.status.waiting_for) == (reason, state, None)
    if reason == "max_train_iters":
        assert ended.status.train_iter == 7, "whatever the size of requests: two batches each"
    assert ended.events.count("run_ends") == 1
    first, last = (ended.log.index(text) for text in ("the run ends: ", "the run is over after "))
    assert first < last


@both_modes
def test_one_that_somebody_has_ended_is_stopped(mode: Mode, tmp_path: Path) -> None:
    ended = mode(config(), tmp_path, stopped=True)
    assert (ended.status.reason, ended.status.state) == ("stopped", "stopped")
    assert 0 < ended.status.env_step < 240
    assert max(ended.records) == ended.status.train_iter, "its last checkpoint is saved"


@both_modes
def test_what_was_evaluated_is_in_the_status_the_index_and_the_log(mode: Mode, tmp_path: Path) -> None:
    ended = mode(config(), tmp_path, stopped=False)
    longest_chunk = NUM_ENVS if mode is serial else COLLECTORS * (CHUNK_ENV_STEPS + 7)
    assert 240 <= ended.status.env_step < 240 + longest_chunk, "in serial mode the last one is as short as it has to be"
    assert 0 in ended.rewards, "the initial policy"
    assert max(ended.records) in ended.rewards, "the last one"
    assert set(ended.rewards) <= set(ended.records)
    assert ended.status.best_return == max(ended.rewards.values())
    assert ended.status.last_return == ended.rewards[max(ended.rewards)]
    for train_iter, reward in ended.rewards.items():
        record = ended.records[train_iter]
        said = f"evaluation of {record.file} at env_step {record.env_step}: mean return {reward:.6g} over 2 episodes ("
        assert said in ended.log
