"""stable-baselines3: PPO on CartPole-v1 for eight rollouts; when its first step was, or when its last update ended."""

from __future__ import annotations

import argparse
import json
import tempfile
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

NUM_ENVS = 8
EVALUATION_EPISODES = 10


class FirstStep(BaseCallback):
    """Notes when the first step of the vector was done, in seconds since 1970."""

    time_s = 0.0

    def _on_step(self) -> bool:
        self.time_s = self.time_s or time.time()
        return True


def main() -> None:
    """Train, save and evaluate as a run does that is compared with it; print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--noted", choices=("first step", "last update"), required=True)
    asked = parser.parse_args().noted
    torch.set_num_threads(1)
    first = FirstStep()
    environments = make_vec_env("CartPole-v1", n_envs=NUM_ENVS, seed=0)
    model = PPO("MlpPolicy", environments, n_steps=32, batch_size=256, n_epochs=20, seed=0, device="cpu")
    model.learn(8 * NUM_ENVS * 32, callback=first)
    last_s = time.time()
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
    evaluate_policy(
        model, make_vec_env("CartPole-v1", n_envs=EVALUATION_EPISODES, seed=1), n_eval_episodes=EVALUATION_EPISODES
    )
    print(json.dumps({"value": first.time_s if asked == "first step" else last_s}))


if __name__ == "__main__":
    main()
