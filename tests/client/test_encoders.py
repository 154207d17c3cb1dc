"""What is promised of `policy.encoder`: one encoder of a user in every algorithm, to the file that is exported."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import remuda
from remuda.config.errors import ConfigError
from remuda.environments.spaces import PackObservations
from remuda.policy.files.exported_policies import model_actor
from remuda.policy.files.playable import find_checkpoint, load_checkpoint_policy
from remuda.policy.networks.custom import Preparation
from remuda.policy.spaces import ObservationSpec
from remuda.tests.environments.structured import Grid

MINE = '''
import torch
from torch import nn

class Attention(nn.Module):
    """Each number is a token; numpy does not know this module."""

    def __init__(self, width):
        super().__init__()
        self.embed, self.mix = nn.Linear(1, width), nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, numbers):
        tokens = self.embed(numbers.unsqueeze(2))
        return self.mix(tokens, tokens, tokens, need_weights=False)[0].mean(1)

def attention(observation, width=8):
    return Attention(width)

def plain(observation, width=8):
    return nn.Sequential(nn.Linear(observation.shape[0], width), nn.LayerNorm(width), nn.SiLU())
'''
CARTPOLE: dict[str, Any] = {"id": "CartPole-v1", "num_envs": 2}
SEQUENCES = {"burn_in_steps": 2, "sequence_steps": 6, "overlap_steps": 2, "recurrent_units": 8, "head_hidden": [8]}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dqn": (CARTPOLE, {}),
    "r2d2": (CARTPOLE, SEQUENCES),
    "ppo, recurrent": (CARTPOLE, {"horizon_steps": 16, "epochs": 1, "recurrent": "gru", "recurrent_units": 8}),
    "muzero": (CARTPOLE, {"simulations": 4, "support_size": 20, "projection_units": 16, "projection_bottleneck": 8}),
}


def trained(folder: Path, name: str, encoder: str) -> Path:
    """A short serial run of an algorithm with one of the encoders; its folder."""
    (folder / "mine.py").write_text(MINE)
    env, policy = CASES[name]
    config: dict[str, Any] = {
        "name": "encoded",
        "env": env,
        "policy": {
            "type": name.partition(",")[0],
            "hidden": [8],
            "encoder": f"mine:{encoder}",
            "encoder_kwargs": {"width": 6},
            **policy,
        },
        "learner": {"batch_size": 16},
        "evaluator": {"episodes": 1, "interval_env_steps": 1_000_000},
        "stop": {"max_env_steps": 96},
    }
    if not name.startswith(("ppo", "impala")):
        config["buffer"] = {"min_rows": 16, "samples_per_insert": 4}
    return remuda.train(config, run_dir=folder / "run", progress=False).run_dir


@pytest.mark.parametrize(
    ("name", "encoder"), [(name, "attention" if name in ("dqn", "impala", "sac") else "plain") for name in CASES]
)
def test_all_sides_act_alike_with_it(name: str, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained(tmp_path, name, encoder)
    searches = name == "muzero"  # and what is exported does not
    restored = load_checkpoint_policy(find_checkpoint(run, "last"), trust_code=True, search=not searches)
    exported = model_actor(run / "model")
    seen = np.random.default_rng(0).normal(size=(20, *restored.observation.shape)).astype(np.float32)
    size = restored.policy.state_size
    states = [np.zeros((20, size), np.float32) if size else None for _ in range(2)]
    for _ in range(2):
        acted, played = (
            actor.act(seen, {}, np.random.default_rng(1), deterministic=True, state=state)
            for actor, state in zip((restored.policy, exported), states, strict=True)
        )
        np.testing.assert_allclose(acted, played, rtol=1e-4, atol=1e-5)
    valued, told = (
        actor.value(seen, state=np.zeros((20, size), np.float32) if size else None)
        for actor in (restored.policy, exported)
    )
    np.testing.assert_allclose(valued, told, rtol=1e-3, atol=1e-4)


def test_observations_are_prepared_as_the_page_says() -> None:
    frame = ObservationSpec((2, 3, 1), "uint8", 0.0, 255.0)
    pixels = np.arange(6, dtype=np.uint8).reshape(1, 2, 3, 1)
    prepared = Preparation(frame)(torch.from_numpy(frame.encode(pixels)))
    assert isinstance(prepared, torch.Tensor)
    assert prepared.shape == (1, 1, 2, 3), "channels first"
    np.testing.assert_allclose(prepared[0, 0], pixels[0, ..., 0] / 255.0)
    matrix = ObservationSpec((2, 3), "float64")
    encoded = torch.zeros(4, 6)
    prepared = Preparation(matrix)(encoded)
    assert prepared.shape == (4, 2, 3)
    prepared += 1.0
    assert (encoded == 0.0).all(), "what is recorded stays, also where a module changes its input in place"
    counted = ObservationSpec((), "int64", n=3, start=1)
    assert Preparation(counted)(torch.from_numpy(counted.encode(np.array([3])))).tolist() == [[0.0, 0.0, 1.0]]
    env = PackObservations(Grid())
    spec = ObservationSpec.of(env.observation_space)
    parts = Preparation(spec)(torch.from_numpy(env.reset(seed=0)[0][None]))
    assert isinstance(parts, dict)
    assert set(parts) == {part.name for part in spec.parts}
    assert all(part.dtype == torch.float32 and len(part) == 1 for part in parts.values())


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"encoder": "nowhere:make"}, "module 'nowhere' cannot be imported"),
        ({"encoder": "mine:plain", "convolution": [[8, 3, 1]]}, "leave one of them out"),
    ],
)
def test_a_config_that_names_none_starts_nothing(policy: dict[str, Any], said: str, tmp_path: Path) -> None:
    config = {"name": "x", "env": {"id": "CartPole-v1"}, "policy": {"type": "dqn", **policy}}
    with pytest.raises(ConfigError, match=said):
        remuda.train(config, run_dir=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
