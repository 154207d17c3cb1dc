"""A policy played from model/ takes the checkpoint's actions, also random ones."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from remuda.config.algorithms.actor_critic import TwinCriticConfig
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.exported_policies import model_actor
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.tests.policy.files.exported import CASES, COUNTERS, leave_behind

cases = pytest.mark.parametrize("name", CASES)


@cases
def test_it_acts_and_values_as_its_checkpoint(tmp_path: Path, name: str) -> None:
    """Among all actions, and among the legal ones."""
    case, rng = CASES[name], np.random.default_rng(1)
    trained = load_checkpoint_policy(leave_behind(case, tmp_path)).policy
    exported = model_actor(tmp_path / "model")
    seen, components = case.seen(rng, 31), case.action.components
    masks: list[np.ndarray | None] = [None]
    explores = {"epsilon": 0.5}
    if isinstance(case.policy, TwinCriticConfig):
        explores |= {"random": 0.0, "noise": 0.3}
    assert exported.uses_legal_actions == bool(components)
    firsts = np.cumsum((0, *components[:-1]))
    if components:
        legal = rng.random((31, sum(components))) < 0.4
        np.put_along_axis(legal, rng.integers(0, components, (31, len(components))) + firsts, True, axis=1)
        masks = [None, legal]
    for deterministic, mask in itertools.product((True, False), masks):
        first, second = (
            actor.act(seen, explores, np.random.default_rng(5), deterministic=deterministic, legal=mask)
            for actor in (trained, exported)
        )
        assert first.dtype == second.dtype
        np.testing.assert_allclose(second, first, rtol=1e-6, atol=1e-6)
        if mask is not None:
            chosen = case.action.indices(first).reshape(31, -1)
            assert np.take_along_axis(mask, chosen + firsts, axis=1).all()
    np.testing.assert_allclose(exported.value(seen), trained.value(seen), rtol=1e-5, atol=1e-5)


def test_the_description_comes_from_inside_the_model(tmp_path: Path) -> None:
    """A copy of model.pt is enough, and the two files cannot disagree during replacement."""
    leave_behind(CASES["dqn"], tmp_path)
    (tmp_path / "model" / "model_info.json").unlink()
    info = model_actor(tmp_path / "model").info
    assert (info.train_iter, info.env_step, info.algorithm) == (COUNTERS.train_iter, COUNTERS.env_step, "dqn")
    assert info.observation == CASES["dqn"].observation


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.pt: no such model"):
        model_actor(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(CheckpointError, match="not a model of Remuda's, or a damaged one"):
        model_actor(tmp_path)
    checkpoint = leave_behind(CASES["dqn"], tmp_path / "run")
    (tmp_path / "model.pt").write_bytes(checkpoint.read_bytes())
    with pytest.raises(CheckpointError, match="not a model of Remuda's"):
        model_actor(tmp_path)
