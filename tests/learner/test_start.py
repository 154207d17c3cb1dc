"""A learner begins with weights from the seed, from another run, or from its own last checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.learner import checkpoint
from remuda.learner.checkpoint import Progress
from remuda.learner.start import continue_from, new_algorithm, take_weights
from remuda.policy.base import Algorithm
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.networks.tensors import DeviceError
from remuda.wire.messages import Counters, PolicyRef

BOX, TWO = gymnasium.spaces.Box(-1.0, 1.0, (3,)), gymnasium.spaces.Discrete(2)


IMAGES = gymnasium.spaces.Box(0, 255, (4, 12, 12), np.uint8)


def config(
    *, seed: int = 0, hidden: tuple[int, ...] = (8, 8), device: str = "cpu", compiled: bool = False
) -> ExperimentConfig:
    return ExperimentConfig(
        name="start",
        seed=seed,
        env=EnvConfig(id="CartPole-v1"),
        policy=DqnConfig(hidden=hidden),
        learner=LearnerConfig(device=device, compile=compiled),
    )


def weights(algorithm: Algorithm) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in algorithm.network.parameters()])


def saved(path: Path, algorithm: Algorithm, settings: ExperimentConfig) -> Path:
    progress = Progress(
        Counters(env_step=50, train_iter=7, policy_version=3), PolicyRef(2, 3, 7), {"epsilon": 0.5}, 1.5
    )
    checkpoint.save(path, algorithm, progress, config=settings)
    return path


def test_the_seed_decides_weights_and_torch_s_random_numbers() -> None:
    one, draw = new_algorithm(config(), BOX, TWO), torch.rand(3)
    two, again = new_algorithm(config(), BOX, TWO), torch.rand(3)
    other, differs = new_algorithm(config(seed=1), BOX, TWO), torch.rand(3)
    assert torch.equal(weights(one), weights(two))
    assert torch.equal(draw, again)
    assert not torch.equal(weights(one), weights(other))
    assert not torch.equal(draw, differs)


def test_what_reads_images_is_compiled_where_the_config_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compiles(function: Callable[..., object], *, backend: str) -> Callable[..., object]:
        asked.append(backend)
        return function

    monkeypatch.setattr(torch, "compile", compiles)
    new_algorithm(config(), IMAGES, TWO)
    new_algorithm(config(compiled=True), BOX, TWO)
    assert asked == []
    new_algorithm(config(compiled=True), IMAGES, TWO)
    assert asked == ["inductor"]


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(DeviceError, match=f"learner.device = '{device}' cannot be used"):
        new_algorithm(config(device=device), BOX, TWO)


def test_a_space_without_an_algorithm_is_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="action space"):
        new_algorithm(config(), BOX, BOX)


def test_continuing_brings_back_weights_progress_and_torch_s_random_numbers(tmp_path: Path) -> None:
    old = new_algorithm(config(seed=5), BOX, TWO)
    path = saved(tmp_path / "iteration_7.pth.tar", old, config(seed=5))
    expected = torch.rand(3)
    new = new_algorithm(config(), BOX, TWO)
    state, warnings = continue_from(path, new, config())
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(weights(new), weights(old))
    progress = state.progress
    assert (progress.counters.train_iter, progress.policy, progress.best_reward) == (7, PolicyRef(2, 3, 7), 1.5)
    assert warnings == []


def test_taking_weights_takes_nothing_else(tmp_path: Path) -> None:
    old = new_algorithm(config(seed=5), BOX, TWO)
    path = saved(tmp_path / "iteration_7.pth.tar", old, config(seed=5))
    new = new_algorithm(config(), BOX, TWO)
    expected = torch.get_rng_state()
    take_weights(path, new)
    assert torch.equal(weights(new), weights(old))
    assert torch.equal(torch.get_rng_state(), expected)


def test_weights_that_do_not_fit_are_named_with_their_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "iteration_7.pth.tar", new_algorithm(config(), BOX, TWO), config())
    larger = new_algorithm(config(hidden=(16, 8)), BOX, TWO)
    for load in (take_weights, lambda path, algorithm: continue_from(path, algorithm, config())):
        with pytest.raises(CheckpointError, match=r"iteration_7\.pth\.tar: .*torso\.0\.weight has shape"):
            load(path, larger)


def test_a_checkpoint_of_another_network_names_the_settings_that_differ(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pth.tar", new_algorithm(config(), BOX, TWO), config())
    other = config(hidden=(16, 8), seed=5)
    with pytest.raises(CheckpointError) as caught:
        continue_from(path, new_algorithm(other, BOX, TWO), other)
    assert str(caught.value) == (
        f"{path} is of another network: policy.hidden is [16, 8] and was [8, 8]. Resume with the settings that it was "
        "trained with, or begin a new run in another folder"
    )
