"""What is promised of loading: a run folder's checkpoints are found, and are believed only where they fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from remuda.learner import checkpoint
from remuda.policy.algorithms.dqn import Dqn
from remuda.policy.checkpoint_file import CheckpointError
from remuda.policy.loading import find_checkpoint, load_checkpoint_policy
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.policy.cases import ACTION, OBSERVATION, config, dqn
from remuda.wire.messages import Counters, PolicyRef


def save(run: Path, algorithm: Dqn, train_iter: int) -> Path:
    path = run / "ckpt" / f"iteration_{train_iter}.pth.tar"
    path.parent.mkdir(exist_ok=True)
    progress = checkpoint.Progress(
        Counters(env_step=train_iter * 10, train_iter=train_iter), PolicyRef(), {"epsilon": 0.5}
    )
    record = checkpoint.save(path, algorithm, progress, config=config())
    CheckpointIndex(path.parent).add(record)
    return path


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, list[Dqn]]:
    """A run with checkpoints 0, 1 and 2."""
    algorithms = [dqn(seed=seed) for seed in range(3)]
    for train_iter, algorithm in enumerate(algorithms):
        save(tmp_path, algorithm, train_iter)
    return tmp_path, algorithms


def test_best_is_the_last_where_nothing_was_evaluated(run: tuple[Path, list[Dqn]]) -> None:
    assert find_checkpoint(run[0]).name == "iteration_2.pth.tar"


def test_a_checkpoint_carries_what_is_needed_to_play_it(run: tuple[Path, list[Dqn]]) -> None:
    trained = load_checkpoint_policy(run[0] / "ckpt" / "iteration_2.pth.tar")
    assert (trained.observation, trained.action, trained.config) == (OBSERVATION, ACTION, config())
    assert (trained.counters.train_iter, trained.counters.env_step) == (2, 20)


def test_a_network_that_does_not_fit_its_config_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, dqn(), 0)
    content = torch.load(path, weights_only=True)
    content["model"]["value.bias"] = torch.zeros(2)
    del content["model"]["advantage.bias"]
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"iteration_0.*missing advantage\.bias.*value\.bias has shape \(2,\)"):
        load_checkpoint_policy(path)


def test_a_config_of_another_remuda_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, dqn(), 0)
    content = torch.load(path, weights_only=True)
    content["config"]["novelty"] = 1
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="its config does not fit this Remuda"):
        load_checkpoint_policy(path)
