"""What a learner writes: its log, its checkpoints, and a model whose failing loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.learner.checkpoint import Progress
from remuda.learner.outputs import LearnerOutputs
from remuda.logbook.book import learner_logbook
from remuda.storage.run_folder import RunFolder
from remuda.tests.policy.cases import config, dqn
from remuda.wire.messages import CheckpointReason, Counters, PolicyRef


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    for path in (folder.ckpt, folder.model, folder.learner_tb):
        path.mkdir(parents=True)
    return folder


def progress(train_iter: int) -> Progress:
    return Progress(Counters(env_step=90, train_iter=train_iter), PolicyRef(0, 1, train_iter), {"epsilon": 0.1})


@pytest.mark.parametrize(
    ("reason", "exported"), [("initial", True), ("interval", True), ("evaluation", False), ("final", True)]
)
def test_a_checkpoint_is_saved_logged_and_mostly_exported(
    run: RunFolder, reason: CheckpointReason, exported: bool
) -> None:
    with learner_logbook(run) as book:
        record = LearnerOutputs(run, config(), book).save(dqn(), progress(12), reason)
    assert (record.file, record.env_step) == ("iteration_12.pth.tar", 90)
    assert f"saved checkpoint {run.checkpoint(12)}\n" in run.learner_log.read_text()
    assert (run.model / "model.pt").exists() is exported


def test_a_model_that_cannot_be_written_is_a_warning(run: RunFolder) -> None:
    run.model.rmdir()
    run.model.write_text("in the way")
    with learner_logbook(run) as book:
        LearnerOutputs(run, config(), book).save(dqn(), progress(1), "final")
    assert run.checkpoint(1).exists()
    assert f"[WARNING] {run.model} could not be written" in run.learner_log.read_text()


def test_the_log_starts_with_the_network_and_says_what_was_loaded(run: RunFolder) -> None:
    with learner_logbook(run) as book:
        outputs = LearnerOutputs(run, config(), book)
        outputs.begin(dqn())
        outputs.loaded(run.checkpoint(3), ["saved with torch 1.0"])
        outputs.report({"total_loss": 0.5}, train_iter=100, env_step=900)
    first, rest = run.learner_log.read_text().split("\n", 1)
    assert first.endswith("[RANK0]: QNetwork(")
    assert f"loaded checkpoint {run.checkpoint(3)}\n" in rest
    assert "[WARNING] saved with torch 1.0\n" in rest
    assert "=== Training Iteration 100 Result ===" in rest
    assert "| total_loss_avg |" in rest
