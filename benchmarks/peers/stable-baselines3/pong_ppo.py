"""stable-baselines3: PPO on Pong, with the settings of its zoo for Atari; env steps/s of whole iterations."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import ale_py
import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

NUM_ENVS, HORIZON_STEPS = 8, 128
MAX_ENV_STEPS = 10_000_000
EMULATOR: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0}
"""AtariWrapper skips the frames itself."""


class Window(BaseCallback):
    """Stops at the first iteration that begins `window_s` seconds after the second one, and keeps the pace between."""

    def __init__(self, window_s: float) -> None:
        super().__init__()
        self.env_steps_per_s = 0.0
        self.env_steps = 0
        self._window_s = window_s
        self._begun: list[float] = []

    def _on_rollout_start(self) -> None:
        self._begun.append(time.perf_counter())
        if len(self._begun) > 2:
            self.env_steps = (len(self._begun) - 2) * NUM_ENVS * HORIZON_STEPS
            self.env_steps_per_s = self.env_steps / (self._begun[-1] - self._begun[1])

    def _on_step(self) -> bool:
        return len(self._begun) < 3 or self._begun[-1] - self._begun[1] < self._window_s


def main() -> None:
    """Train and print one JSON line. torch takes as many threads as it wants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--window-s", type=float, default=20.0)
    parser.add_argument("--vector", choices=["dummy", "subproc"], default="dummy")
    given = parser.parse_args()
    gymnasium.register_envs(ale_py)
    games = make_atari_env(
        "ALE/Pong-v5",
        n_envs=NUM_ENVS,
        seed=given.seed,
        env_kwargs=EMULATOR,
        vec_env_cls={"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[given.vector],
    )
    window = Window(given.window_s)
    model = PPO(
        "CnnPolicy",
        VecFrameStack(games, n_stack=4),
        n_steps=HORIZON_STEPS,
        n_epochs=4,
        batch_size=256,
        learning_rate=lambda remaining: 2.5e-4 * remaining,
        clip_range=lambda remaining: 0.1 * remaining,
        vf_coef=0.5,
        ent_coef=0.01,
        seed=given.seed,
        device="cpu",
    )
    model.learn(MAX_ENV_STEPS, callback=window)
    facts = {
        "value": window.env_steps_per_s,
        "env_steps": window.env_steps,
        "threads": torch.get_num_threads(),
        "vector": given.vector,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
