"""A learner writes its log, checkpoints, and a model whose failure loses nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from remuda.config.workers import LogConfig
from remuda.learner.checkpoint import Progress, UnusableStateError
from remuda.learner.outputs import LearnerOutputs
from remuda.logbook.role_logbooks import learner_logbook
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.networks.portable import Portable
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import histograms
from remuda.tests.policy.cases import ACTION, OBSERVATION, config, dqn
from remuda.wire.messages import CheckpointReason, Counters, PolicyRef


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    for path in (folder.ckpt, folder.model, folder.learner_tb):
        path.mkdir(parents=True)
    return folder


def progress(train_iter: int) -> Progress:
    return Progress(Counters(env_step=90, train_iter=train_iter), PolicyRef(0, 1, train_iter), {"epsilon": 0.1})


@dataclass
class Clock:
    """A clock that advances by `look_s` with each call, so that writing a model takes as long."""

    now_s: float = 50.0
    look_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += self.look_s
        return self.now_s


@pytest.mark.parametrize(("look_s", "gap_s"), [(0.05, 5.0), (0.5, 30.0)])
def test_the_model_is_not_written_at_frequent_evaluations(run: RunFolder, look_s: float, gap_s: float) -> None:
    """It takes at most a hundredth of the time, or happens once in 30 s."""
    saves: list[tuple[float, CheckpointReason, int]] = [
        (0.0, "initial", 0),
        (3.0, "evaluation", 1),
        (gap_s - 2.0, "evaluation", 1),
        (gap_s + 3.0, "evaluation", 3),
        (0.1, "interval", 4),
        (0.1, "evaluation", 4),
        (gap_s + 3.0, "evaluation", 6),
        (0.1, "preemption", 7),
        (0.1, "final", 8),
    ]
    clock = Clock()
    with learner_logbook(run) as book:
        outputs = LearnerOutputs(run, config(), book, clock=clock)
        for train_iter, (after_s, reason, expected) in enumerate(saves):
            clock.now_s, clock.look_s = clock.now_s + after_s, look_s
            outputs.save(dqn(), progress(train_iter), reason)
            clock.look_s = 0.0
            assert exported(run) == expected
    kept = {path.name for path in run.model.glob("iteration_*.pt")}
    assert kept == {f"iteration_{train_iter}.pt" for train_iter in (0, 1, 3, 4, 6, 7, 8)}
    assert run.model_of(8).samefile(run.model / "model.pt")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"actor": {}, "critic": {}}, r"Dqn\.state\(\) has the keys actor, critic: a checkpoint has model"),
        ({"model": {}, "actor": {}}, r"has the keys model, actor: .* may have target_model, optimizer, schedules"),
        ({"model": {}, "schedules": {"seen": np.zeros(2)}}, r"could not be loaded again: .* besides tensors, numbers"),
    ],
    ids=["no model", "a key that is not loaded", "an array of numpy"],
)
def test_the_first_checkpoint_shows_that_all_can_be_loaded(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, state: dict[str, object], said: str
) -> None:
    """Of an algorithm of the user's own; else the state would be lost at the resume after days."""
    algorithm = dqn()
    monkeypatch.setattr(algorithm, "state", lambda: state)
    with learner_logbook(run) as book, pytest.raises(UnusableStateError, match=said):
        LearnerOutputs(run, config(), book).save(algorithm, progress(0), "initial")
    assert not list(run.ckpt.iterdir())


def exported(run: RunFolder) -> int:
    """The train_iter of model/."""
    info: dict[str, int] = json.loads((run.model / "model_info.json").read_text())
    return info["train_iter"]


class Untraceable(Dqn):
    """A network that torch cannot trace, with any type of error."""

    def portable(self) -> Portable:
        raise TypeError("this network cannot be traced")


def test_a_model_that_cannot_be_traced_is_a_warning_after_the_weights_are_saved(run: RunFolder) -> None:
    algorithm = Untraceable(config(), OBSERVATION, ACTION, seed=0)
    with learner_logbook(run) as book:
        record = LearnerOutputs(run, config(), book).save(algorithm, progress(1), "interval")
    assert (run.ckpt / record.file).exists()
    log = run.learner_log.read_text()
    assert "could not be written; the run continues: TypeError: this network cannot be traced" in log
    assert log.index("saved checkpoint") < log.index("could not be written")


@pytest.mark.parametrize("reason", ["initial", "interval"])
def test_every_checkpoint_is_logged_exported_and_summed_up(run: RunFolder, reason: CheckpointReason) -> None:
    algorithm = dqn()
    with learner_logbook(run) as book:
        outputs = LearnerOutputs(run, config(), book)
        record = outputs.save(algorithm, progress(12), reason)
        assert (record.file, record.env_step, exported(run)) == ("iteration_12.pth.tar", 90, 12)
        assert f"saved checkpoint {run.checkpoint(12)}\n" in run.learner_log.read_text()
        outputs.save(algorithm, progress(12), "final")
        outputs.save(algorithm, progress(20), "final")
    found = histograms(run.learner_tb)
    assert set(found) == {f"weights_iter/{name}" for name, _ in algorithm.network.named_parameters()}
    assert all([step for step, _ in points] == [12, 20] for points in found.values())
    sizes = {name: parameter.numel() for name, parameter in algorithm.network.named_parameters()}
    assert {tag.partition("/")[2]: sum(points[0][1].counts) for tag, points in found.items()} == sizes


def test_histograms_can_be_switched_off(run: RunFolder) -> None:
    off = config().model_copy(update={"log": LogConfig(histograms=False)})
    with learner_logbook(run) as book:
        LearnerOutputs(run, off, book).save(dqn(), progress(12), "final")
    assert histograms(run.learner_tb) == {}
