"""model/ as a run leaves it: that of the last checkpoint; and where it cannot be written, nothing else is lost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from remuda.learner.checkpoint import load
from remuda.policy.files.functions import load_action
from remuda.runner.serial import Start, run
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.conftest import Finished
from remuda.tests.runner.runs import Flag, Ticking, tiny_config
from remuda.wire.messages import ExperimentStatus

pytestmark = pytest.mark.xdist_group("a finished serial run")


def test_the_model_acts_as_the_last_checkpoint(finished: Finished) -> None:
    root = finished.folder.root
    info = json.loads((finished.folder.model / "model_info.json").read_text())
    counters = finished.result.counters
    assert (info["train_iter"], info["env_step"]) == (counters.train_iter, counters.env_step)
    last, model = load_action(root, "last"), load_action(root, "model")
    rows = np.random.default_rng(0).uniform(-10.0, 10.0, (50, 2)).astype(np.float32)
    assert [last(row) for row in rows] == [model(row) for row in rows]


def test_a_model_that_cannot_be_exported_costs_neither_weights_nor_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    obstacle = folder.model / "model.pt"

    def stand_in_the_way(status: ExperimentStatus) -> None:
        if not obstacle.is_dir():
            obstacle.unlink(missing_ok=True)
            obstacle.mkdir()

    config = tiny_config(tmp_path / "user", "stop.max_env_steps=300", "checkpoint.interval_env_steps=100")
    result = run(config, Start(folder.root), stop=Flag(), clock=Ticking(), on_progress=stand_in_the_way)
    assert (result.failed, result.reason) == (False, "max_env_steps")
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    assert last.train_iter == result.counters.train_iter
    assert load(folder.ckpt / last.file).progress.counters.train_iter == last.train_iter
    assert obstacle.is_dir()
    log = folder.learner_log.read_text()
    assert log.count(f"[WARNING] {folder.model} could not be written; the run continues: IsADirectoryError") >= 1
    assert log.rindex("saved checkpoint") < log.rindex("could not be written"), "weights first"
