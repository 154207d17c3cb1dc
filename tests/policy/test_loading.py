"""What is promised of loading: a run folder's checkpoints become functions that act as the run did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.learner import checkpoint
from remuda.policy import load_policy, load_value
from remuda.policy.algorithms.dqn import Dqn
from remuda.policy.checkpoint_file import CheckpointError
from remuda.policy.loading import find_checkpoint, load_checkpoint_policy
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.tests.policy.cases import ACTION, OBSERVATION, batch, config, dqn
from remuda.wire.messages import Counters, PolicyRef

OBSERVATIONS = np.random.default_rng(3).normal(size=(20, 4)).astype(np.float32)


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


def best_actions(algorithm: Dqn) -> list[int]:
    with torch.no_grad():
        return [int(action) for action in algorithm.network(torch.tensor(OBSERVATIONS)).argmax(1)]


def test_each_checkpoint_acts_as_its_network(run: tuple[Path, list[Dqn]]) -> None:
    folder, algorithms = run
    CheckpointIndex(folder / "ckpt").set_reward(1, 9.0, best=True)
    expected = {0: 0, 1: 1, 2: 2, "best": 1, "last": 2}
    for which, index in expected.items():
        get_action = load_policy(folder, which)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert [get_action(row) for row in OBSERVATIONS] == best_actions(algorithms[index])


def test_best_is_the_last_where_nothing_was_evaluated(run: tuple[Path, list[Dqn]]) -> None:
    assert find_checkpoint(run[0]).name == "iteration_2.pth.tar"


def test_values_are_those_of_the_best_action(run: tuple[Path, list[Dqn]]) -> None:
    folder, algorithms = run
    value = load_value(str(folder), 1)
    with torch.no_grad():
        expected = algorithms[1].network(torch.tensor(OBSERVATIONS)).amax(1).numpy()
    np.testing.assert_allclose([value(row) for row in OBSERVATIONS], expected, atol=1e-5)


def test_exploring_is_that_of_the_checkpoint_and_repeatable(run: tuple[Path, list[Dqn]]) -> None:
    first, second = (
        [int(get_action(OBSERVATIONS[0], deterministic=False)) for _ in range(200)]
        for get_action in (load_policy(run[0], 0), load_policy(run[0], 0))
    )
    assert first == second
    assert 60 < sum(first) < 140  # at env_step 0 every action is random


def test_a_checkpoint_carries_what_is_needed_to_play_it(run: tuple[Path, list[Dqn]]) -> None:
    trained = load_checkpoint_policy(run[0] / "ckpt" / "iteration_2.pth.tar")
    assert (trained.observation, trained.action, trained.config) == (OBSERVATION, ACTION, config())
    assert (trained.counters.train_iter, trained.counters.env_step) == (2, 20)


def test_what_is_not_there_is_named(run: tuple[Path, list[Dqn]], tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(CheckpointIndexError, match="no checkpoint of iteration 7"):
        load_policy(run[0], 7)
    with pytest.raises(CheckpointError, match="no checkpoint is listed"):
        load_policy(tmp_path_factory.mktemp("empty"))


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


def test_training_on_does_not_reach_what_was_loaded(run: tuple[Path, list[Dqn]]) -> None:
    get_action, before = load_policy(run[0], 2), best_actions(run[1][2])
    for seed in range(20):
        run[1][2].learn(batch(np.random.default_rng(seed)))
    assert [get_action(row) for row in OBSERVATIONS] == before
