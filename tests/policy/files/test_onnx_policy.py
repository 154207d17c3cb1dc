"""An exported ONNX file plays the episodes of its policy."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.policy.base import Actor
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.exported_policies import description_of, onnx_actor
from remuda.policy.files.playable import exported_playable
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.export.cases import Made, fresh, made

pytestmark = pytest.mark.xdist_group("exported policies")

OF_EVERY_KIND = ("ppo, several", "ppo, gru, continuous", "crossq, hyperspherical", "dqn, parts with an image")


def walker() -> Made:
    """A policy for CartPole whose actions depend on observations."""
    seen = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)
    return fresh(DqnConfig(hidden=(9,)), seen, ObservationSpec((4,), "float32"), ActionSpec(2))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a policy for CartPole."""
    path = tmp_path_factory.mktemp("played") / "policy.onnx"
    walker().export.write(path, "onnx")
    return path


def answers(actor: Actor, seen: np.ndarray, legal: np.ndarray | None, *, deterministic: bool) -> list[np.ndarray]:
    state = np.zeros((len(seen), actor.state_size), np.float32) if actor.state_size else None
    explores, rng = {"epsilon": 0.3, "noise": 0.2, "random": 0.0}, np.random.default_rng(5)
    return [actor.act(seen, explores, rng, deterministic=deterministic, legal=legal, state=state) for _ in range(3)]


@pytest.mark.parametrize("name", OF_EVERY_KIND)
def test_it_acts_as_the_policy_does_also_by_chance(tmp_path: Path, name: str) -> None:
    case, path = made(name), tmp_path / "policy.onnx"
    case.export.write(path, "onnx")
    seen, legal, exported = case.recorded.observations, case.recorded.legal, onnx_actor(path)
    for deterministic in (True, False):
        both = [answers(actor, seen, legal, deterministic=deterministic) for actor in (case.policy, exported)]
        for one, other in zip(*both, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def copied(played: Path, folder: Path) -> Path:
    path = folder / "policy.onnx"
    path.write_bytes(played.read_bytes())
    description_of(path).write_bytes(description_of(played).read_bytes())
    return path


def test_what_is_not_the_file_that_was_described_is_refused(played: Path, tmp_path: Path) -> None:
    path = copied(played, tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"damaged, or not the file that policy\.onnx\.json describes"):
        onnx_actor(path)
    path = copied(played, tmp_path)
    description_of(path).write_text("{}")
    with pytest.raises(CheckpointError, match=r"policy\.onnx\.json: does not describe a policy"):
        onnx_actor(path)
    description_of(path).unlink()
    with pytest.raises(CheckpointError, match=r"policy\.onnx\.json: no such file; .* go together"):
        onnx_actor(path)


def test_that_of_another_user_takes_trust(played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its description names an environment, and thus code."""
    path, own = copied(played, tmp_path), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(CheckpointError, match=r"belongs to another user .* names code to run.*--trust-code"):
        exported_playable(path)
    assert exported_playable(path, trust_code=True).train_iter == 12
