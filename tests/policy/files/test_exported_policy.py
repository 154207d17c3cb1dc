"""A policy played from model/ takes the checkpoint's actions, also random ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.config.algorithms.actor_critic import TwinCriticConfig
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.exported_policies import ExportedPolicy
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.tests.policy.files.exported import CASES, COUNTERS, leave_behind

cases = pytest.mark.parametrize("name", CASES)


@cases
def test_it_acts_and_values_as_its_checkpoint(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    trained = load_checkpoint_policy(leave_behind(case, tmp_path)).policy
    exported = ExportedPolicy(tmp_path / "model")
    seen = case.seen(np.random.default_rng(1), 31)
    explores = {"epsilon": 0.5}
    if isinstance(case.policy, TwinCriticConfig):
        explores |= {"random": 0.0, "noise": 0.3}
    for deterministic in (True, False):
        first, second = (
            actor.act(seen, explores, np.random.default_rng(5), deterministic=deterministic)
            for actor in (trained, exported)
        )
        assert first.dtype == second.dtype
        np.testing.assert_allclose(second, first, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(exported.value(seen), trained.value(seen), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.action.components])
def test_it_chooses_among_the_legal_actions_as_its_checkpoint(tmp_path: Path, name: str) -> None:
    case, rng = CASES[name], np.random.default_rng(1)
    trained = load_checkpoint_policy(leave_behind(case, tmp_path)).policy
    exported = ExportedPolicy(tmp_path / "model")
    assert exported.uses_legal_actions
    seen, components = case.seen(rng, 31), case.action.components
    legal, firsts = rng.random((31, sum(components))) < 0.4, np.cumsum((0, *components[:-1]))
    np.put_along_axis(legal, rng.integers(0, components, (31, len(components))) + firsts, True, axis=1)
    for deterministic in (True, False):
        explores, seed = {"epsilon": 0.5, "random": 0.0}, 5
        first, second = (
            actor.act(seen, explores, np.random.default_rng(seed), deterministic=deterministic, legal=legal)
            for actor in (trained, exported)
        )
        np.testing.assert_array_equal(second, first)
        chosen = case.action.indices(first).reshape(31, -1)
        assert np.take_along_axis(legal, chosen + firsts, axis=1).all()


def test_the_description_comes_from_inside_the_model(tmp_path: Path) -> None:
    """A copy of model.pt is enough, and the two files cannot disagree during replacement."""
    leave_behind(CASES["dqn"], tmp_path)
    (tmp_path / "model" / "model_info.json").unlink()
    info = ExportedPolicy(tmp_path / "model").info
    assert (info.train_iter, info.env_step, info.algorithm) == (COUNTERS.train_iter, COUNTERS.env_step, "dqn")
    assert info.observation == CASES["dqn"].observation


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.pt: no such model"):
        ExportedPolicy(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(CheckpointError, match="not a model of Remuda's, or a damaged one"):
        ExportedPolicy(tmp_path)
    checkpoint = leave_behind(CASES["dqn"], tmp_path / "run")
    (tmp_path / "model.pt").write_bytes(checkpoint.read_bytes())
    with pytest.raises(CheckpointError, match="not a model of Remuda's"):
        ExportedPolicy(tmp_path)
