"""A variant of PPO in one small class of the user's own: derived from the built-in entry, it trains and is resumed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from remuda.config.load import LoadedConfig, load_settings
from remuda.policy.files.functions import load_policy
from remuda.runner.serial import Start, run
from remuda.tests.runner.runs import Flag

CLIPPED = """
from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.policy.algorithms.actor_critic.entries import PpoEntry
from remuda.policy.algorithms.actor_critic.ppo import Ppo


class Settings(PpoConfig):
    smallest_reward: float = -1.0


class Clipped(Ppo):
    def learn(self, batch):
        smallest = self._policy.smallest_reward
        return super().learn({**batch, "reward": batch["reward"].clip(min=smallest)})


class ClippedPpo(PpoEntry):
    settings = Settings

    def make_algorithm(self, setup, seed):
        return Clipped(setup.config, setup.observation, setup.action, seed)
"""


def variant(folder: Path, *, env_steps: int, **policy: object) -> LoadedConfig:
    settings = {
        "name": "variant",
        "env": {"id": "CartPole-v1", "num_envs": 2},
        "policy": {"type": "clipped:ClippedPpo", "horizon_steps": 16, "minibatches": 2, "epochs": 2, **policy},
        "collector": {"count": 1},
        "evaluator": {"episodes": 1},
        "stop": {"max_env_steps": env_steps},
    }
    return load_settings(settings, folder=folder)


def test_a_variant_of_ppo_trains_as_ppo_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "clipped.py").write_text(CLIPPED)
    loaded = variant(tmp_path, env_steps=96, smallest_reward=0.5)
    assert loaded.config.learner.max_grad_norm == 0.5, "the defaults of PPO"
    assert loaded.provenance["learner.max_grad_norm"] == "algorithm"
    starts = (96, Start(tmp_path / "run")), (192, Start(tmp_path / "run", "resume"))
    for env_steps, start in starts:
        result = run(variant(tmp_path, env_steps=env_steps, smallest_reward=0.5).config, start, stop=Flag())
        assert not result.failed, result
        assert result.counters.train_iter >= env_steps // 32 * 4
    env, get_action = load_policy(tmp_path / "run", trust_code=True)
    assert get_action(env.reset(seed=0)[0]) in (0, 1)
    sys.modules.pop("clipped", None)
