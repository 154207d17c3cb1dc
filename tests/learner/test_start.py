"""A learner begins with weights from the seed, from another run, or from its own last checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.current import Changes, Values, config_at
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.learner import checkpoint
from remuda.learner.checkpoint import Progress, continue_from, new_algorithm
from remuda.learner.loop import Batch, LearnerLoop
from remuda.learner.prefetch import Prefetch
from remuda.learner.settings import LearnerSettings
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.tests.policy.cases import dqn
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef

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


def saved(path: Path, algorithm: Algorithm, settings: ExperimentConfig) -> CheckpointRecord:
    progress = Progress(
        Counters(env_step=50, train_iter=7, policy_version=3), PolicyRef(2, 3, 7), {"epsilon": 0.5}, 1.5
    )
    return checkpoint.save(path, algorithm, progress, config=settings)


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


def test_a_checkpoint_of_another_network_names_the_settings_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "a.pth.tar"
    record = saved(path, new_algorithm(config(), BOX, TWO), config())
    other = config(hidden=(16, 8), seed=5)
    with pytest.raises(CheckpointError) as caught:
        continue_from(path, new_algorithm(other, BOX, TWO), other, recorded=record.sha256)
    assert str(caught.value) == (
        f"{path} is of another network: policy.hidden is [16, 8] and was [8, 8]. Resume with the settings that it was "
        "trained with, or begin a new run in another folder"
    )


RATE = "learner.learning_rate"


def scheduled(rate: object) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        {"name": "bay", "env": {"id": "CartPole-v1"}, "learner": {"learning_rate": rate}}
    )


@dataclass
class Told:
    """Records adjustments, and the settings of each update."""

    adjusted: list[Values] = field(default_factory=list[Values])
    rate: float = -1.0
    learned_with: list[float] = field(default_factory=list[float])

    def adjust(self, config: ExperimentConfig, values: Values) -> None:
        self.adjusted.append(values)
        self.rate = config.learner.learning_rate

    def learn(self, batch: Arrays) -> LearnResult:
        self.learned_with.append(self.rate)
        return LearnResult({"loss": torch.zeros(())})


class Listed:
    def __init__(self, env_steps: Sequence[int]) -> None:
        self._batches = [Batch(np.arange(1), {}, at) for at in env_steps]

    def next_batch(self) -> Batch | None:
        return self._batches.pop(0) if self._batches else None


def loop(source: Listed | Prefetch, told: Told, settings: LearnerSettings) -> LearnerLoop:
    return LearnerLoop(
        dqn(), source, publish_interval_iters=1, report_interval_iters=1, learn=told.learn, follow=settings.follow
    )


SCHEDULE = [[10, 0.5], [20, 0.25], [90, 0.125]]
STEPS = st.lists(st.integers(0, 120), max_size=12).map(sorted)


@given(STEPS, st.lists(st.tuples(st.integers(0, 100), st.floats(0.01, 1)), max_size=3))
def test_an_update_has_the_settings_of_its_batch(env_steps: list[int], changes: list[tuple[int, float]]) -> None:
    changed: Changes = {RATE: sorted(changes)}
    base, told = scheduled(SCHEDULE), Told()
    settings = LearnerSettings(base, told.adjust, changed)
    learner = loop(Listed(env_steps), told, settings)
    while learner.step().trained:
        pass
    expected = [config_at(base, at, changed).learner.learning_rate for at in env_steps]
    assert told.learned_with == expected
    assert all(before != after for before, after in zip(told.adjusted, told.adjusted[1:], strict=False))
    assert not expected or settings.values == {RATE: expected[-1]}
