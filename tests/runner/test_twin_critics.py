"""SAC and TD3 in serial mode: a run is the same twice, is resumed, and its checkpoint and its model are played."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from remuda.policy.files.functions import load_policy
from remuda.runner.serial import Start
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.runs import run_tiny, tiny_config

SETTINGS = ("env={id: Pendulum-v1, num_envs: 4, vectorization: sync}", "env.max_episode_steps=40")
KINDS = {
    "sac": "policy={type: sac, hidden: [16, 16]}",
    "td3": "policy={type: td3, hidden: [16, 16]}",
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def models(root: Path) -> dict[str, Any]:
    """The newest checkpoint."""
    newest = max(
        (root / "ckpt").glob("iteration_*.pth.tar"), key=lambda path: int(path.name.split("_")[1].split(".")[0])
    )
    loaded: dict[str, Any] = torch.load(newest, weights_only=True)
    return loaded


@each_kind
def test_the_same_config_gives_the_same_numbers_and_goes_on_after_a_resume(
    kind: str, user: Path, tmp_path: Path
) -> None:
    config = tiny_config(user, *SETTINGS, KINDS[kind])
    first, second = (run_tiny(config, Start(tmp_path / name)) for name in ("one", "two"))
    assert not first.failed, first.explanation
    assert first.counters.train_iter > 50
    one, two = models(first.run_dir), models(second.run_dir)
    assert all(torch.equal(one["model"][name], two["model"][name]) for name in one["model"])
    longer = tiny_config(user, *SETTINGS, KINDS[kind], "stop.max_env_steps=600")
    again = run_tiny(longer, Start(first.run_dir, "resume"))
    assert not again.failed, again.explanation
    assert again.counters.train_iter > first.counters.train_iter
    after = models(first.run_dir)
    assert after["optimizer"]["critics"]["step"] == after["schedules"]["updates"] == again.counters.train_iter


@each_kind
def test_the_checkpoint_and_the_model_act_alike_within_the_bounds(kind: str, user: Path, tmp_path: Path) -> None:
    run = run_tiny(tiny_config(user, *SETTINGS, KINDS[kind]), Start(tmp_path / "run"))
    folder = RunFolder(run.run_dir)
    assert (folder.root / "model" / "model.pt").exists()
    seen = np.array([1.0, 0.0, 0.5], np.float32)
    acted: list[np.ndarray] = []
    chosen: tuple[Literal["last", "model"], ...] = ("last", "model")
    for which in chosen:
        env, act = load_policy(folder.root, which)
        acted.append(np.asarray(act(seen)))
        env.close()
    np.testing.assert_allclose(acted[0], acted[1], atol=1e-5)
    assert (np.abs(acted[0]) <= 2.0).all()
