"""What is recorded of a run gets into its logs and its index.json, in both modes by the same words."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.logbook.progress import ProgressColumns
from remuda.logbook.role_logbooks import commander_logbook, serial_logbook
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import Mode, prepare
from remuda.storage.run_folder import RunFolder
from remuda.training.commander.commander import Commander
from remuda.training.effects import LogLine, RecordCheckpoint, RecordEffect, RecordReward, WriteTimers, record
from remuda.training.recovery import catch_up
from remuda.training.snapshot import EvaluationResult
from remuda.wire.messages import CheckpointRecord

RUN = "a run"


def begun(root: Path, mode: Mode) -> tuple[RunFolder, Logbook]:
    folder = prepare(root, "error", mode=mode, now=datetime.now().astimezone())
    return folder, serial_logbook(folder, ProgressColumns()) if mode == "serial" else commander_logbook(
        folder, ProgressColumns()
    )


def saved(folder: RunFolder, train_iter: int) -> CheckpointRecord:
    path = folder.checkpoint(train_iter)
    path.write_bytes(b"weights")
    return CheckpointRecord(train_iter, 10 * train_iter, 1.0, None, path.name, "0" * 64, "now")


def test_checkpoints_are_listed_evaluated_pruned_and_linked(tmp_path: Path) -> None:
    folder, log = begun(tmp_path / "run", "serial")
    checkpoints = CheckpointIndex(folder.ckpt)
    effects: list[RecordEffect] = []
    for train_iter in (0, 10, 20, 30):
        last = train_iter == 30
        listed = saved(folder, train_iter)
        effects.append(RecordCheckpoint(RUN, listed, keep=1, interrupted=last, in_use=(10,) if last else ()))
        if train_iter == 0:
            effects.append(RecordReward(RUN, 0, 5.0, best=True))
    with closing(log):
        for effect in effects[:-1]:
            record(effect, folder, log, checkpoints)
        assert [each.train_iter for each in checkpoints.records] == [0, 20], "the initial, which is the best, and one"
        record(effects[-1], folder, log, checkpoints)
    assert checkpoints.best is not None
    assert (checkpoints.best.train_iter, checkpoints.best.reward) == (0, 5.0)
    assert [each.train_iter for each in checkpoints.records] == [0, 30]
    assert folder.interrupt.samefile(folder.checkpoint(30))
    assert folder.best.samefile(folder.checkpoint(0))


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_lines_stand_where_the_commander_speaks(mode: Mode, tmp_path: Path) -> None:
    folder, log = begun(tmp_path / "run", mode)
    checkpoints = CheckpointIndex(folder.ckpt)
    with closing(log):
        record(LogLine(RUN, "two of them cut", "warning"), folder, log, checkpoints)
        record(WriteTimers(RUN, {"wall_s": 1.5}), folder, log, checkpoints)
    text = (folder.serial_evaluator_log if mode == "serial" else folder.commander_log).read_text()
    assert "[WARNING] two of them cut" in text
    assert "1.5" in folder.timers.read_text()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder, log = begun(tmp_path / "run", "serial")
    log.close()
    return folder


@pytest.mark.parametrize(("policy", "best"), [(MuZeroConfig(players=2), 10), (MuZeroConfig(), 0)])
def test_the_best_comes_back_also_with_an_equal_return(folder: RunFolder, policy: MuZeroConfig, best: int) -> None:
    """In self-play the newest is the best, and returns are often equal."""
    checkpoints = CheckpointIndex(folder.ckpt)
    commander = Commander(ExperimentConfig(name="x", env=EnvConfig(id="CartPole-v1"), policy=policy))
    for train_iter in (0, 10):
        record = saved(folder, train_iter)
        checkpoints.add(record)
        commander.evaluated(EvaluationResult(record, (0.0,), (1,), 1.0))
        if train_iter == 0:
            checkpoints.set_reward(0, 0.0, best=True)
    catch_up(checkpoints, commander.snapshot())
    assert checkpoints.best is not None
    assert (checkpoints.best.train_iter, checkpoints.best.reward) == (best, 0.0)
    assert [record.reward for record in checkpoints.records] == [0.0, 0.0]
    assert folder.best.samefile(folder.checkpoint(best))
