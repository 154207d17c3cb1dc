"""What a killed run's journal has and its index.json does not have yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.training.test_recording import begun, saved
from remuda.training.commander.commander import Commander
from remuda.training.commander.evaluation import EvaluationResult
from remuda.training.recovery import catch_up


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder, log = begun(tmp_path / "run", "serial")
    log.close()
    return folder


@pytest.mark.parametrize(("policy", "best"), [(MuZeroConfig(players=2), 10), (MuZeroConfig(), 0)])
def test_the_best_comes_back_also_where_its_return_is_that_of_the_former(
    folder: RunFolder, policy: MuZeroConfig, best: int
) -> None:
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
