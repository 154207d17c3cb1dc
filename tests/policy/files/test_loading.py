"""A run folder's checkpoints are found, and loaded only if they fit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.storage.run_folder import PolicyFolder
from remuda.tests.policy.cases import dqn
from remuda.tests.policy.files.saved_runs import save


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


def naming_code(path: Path, source_dir: Path) -> Path:
    """The same checkpoint, of an algorithm in a module of this folder."""
    source_dir.mkdir(exist_ok=True)
    (source_dir / "mine_to_load.py").write_text("raise RuntimeError('it was imported')")
    content = torch.load(path, weights_only=True)
    content["config"] |= {"policy": {"type": "mine_to_load:Mine"}, "source_dir": str(source_dir)}
    torch.save(content, path)
    return path


@pytest.mark.parametrize("name", ["run", "ckpt"])
def test_code_beside_a_run_is_trusted_not_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever the run folder is called."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / name).mkdir()
    path = save(tmp_path / name, dqn(), 0)
    with pytest.raises(CheckpointError, match="it was imported"):
        load_checkpoint_policy(naming_code(path, tmp_path))
    with pytest.raises(CheckpointError, match="is in the run folder itself"):
        load_checkpoint_policy(naming_code(path, tmp_path / name / "code"))


def test_the_run_folder_of_one_of_several_policies_is_told(tmp_path: Path) -> None:
    """Checkpoints of several policies are in subfolders."""
    folder = PolicyFolder(tmp_path, "fox")
    folder.ckpt.mkdir(parents=True)
    path = naming_code(save(tmp_path, dqn(), 0).rename(folder.checkpoint(0)), tmp_path / "code")
    with pytest.raises(CheckpointError, match=f"of {tmp_path} names .* is in the run folder itself"):
        load_checkpoint_policy(path, run_dir=tmp_path)
