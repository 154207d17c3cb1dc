"""stable-baselines3: one run of an algorithm in an environment, with the settings that its zoo has tuned."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

WIDE: dict[str, Any] = {
    "log_std_init": -2,
    "ortho_init": False,
    "activation_fn": torch.nn.ReLU,
    "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}


def falling_from(start: float) -> Callable[[float], float]:
    """A schedule that falls linearly to 0."""
    return lambda remaining: start * remaining


LANDER: dict[str, Any] = {
    "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
    "ent_coef": 0.01,
}  # fmt: skip
TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("ppo", "CartPole-v1"): {
        "n_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
        "ent_coef": 0.0, "learning_rate": falling_from(0.001), "clip_range": falling_from(0.2),
    },
    ("ppo", "Pendulum-v1"): {
        "n_envs": 4, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0,
        "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
    },
    ("ppo", "MountainCarContinuous-v0"): {
        "normalize": True, "n_envs": 1, "batch_size": 256, "n_steps": 8, "gamma": 0.9999, "learning_rate": 7.77e-5,
        "ent_coef": 0.00429, "clip_range": 0.1, "n_epochs": 10, "gae_lambda": 0.9, "max_grad_norm": 5, "vf_coef": 0.19,
        "use_sde": True, "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
    },
    ("ppo", "Acrobot-v1"): {
        "normalize": True, "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4,
        "ent_coef": 0.0,
    },
    ("ppo", "LunarLander-v3"): LANDER,
    ("ppo", "LunarLanderContinuous-v3"): LANDER,
    ("ppo", "HalfCheetah-v5"): {
        "normalize": True, "n_envs": 1, "batch_size": 64, "n_steps": 512, "gamma": 0.98, "learning_rate": 2.0633e-05,
        "ent_coef": 0.000401762, "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8,
        "vf_coef": 0.58096, "policy_kwargs": WIDE,
    },
    ("ppo", "Hopper-v5"): {
        "normalize": True, "n_envs": 1, "batch_size": 32, "n_steps": 512, "gamma": 0.999, "learning_rate": 9.80828e-05,
        "ent_coef": 0.00229519, "clip_range": 0.2, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7,
        "vf_coef": 0.835671, "policy_kwargs": WIDE,
    },
    ("ppo", "Walker2d-v5"): {
        "normalize": True, "n_envs": 1, "batch_size": 32, "n_steps": 512, "gamma": 0.99, "learning_rate": 5.05041e-05,
        "ent_coef": 0.000585045, "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.95, "max_grad_norm": 1,
        "vf_coef": 0.871923,
    },
    ("dqn", "CartPole-v1"): {
        "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1_000, "gamma": 0.99,
        "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_env_steps": 8_000,
        "exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [256, 256]},
    },
    ("sac", "Pendulum-v1"): {"learning_rate": 1e-3},
    ("td3", "Pendulum-v1"): {
        "gamma": 0.98, "buffer_size": 200_000, "learning_starts": 10_000, "noise_std": 0.1, "gradient_steps": 1,
        "train_freq": 1, "learning_rate": 1e-3, "policy_kwargs": {"net_arch": [400, 300]},
    },
    ("sac", "HalfCheetah-v5"): {"learning_starts": 10_000},
    ("sac", "Hopper-v5"): {"learning_starts": 10_000},
    ("sac", "Walker2d-v5"): {"learning_starts": 10_000},
}  # fmt: skip
"""Of the zoo, for newer versions of the environments. By its names, but `exploration_env_steps` (it has a share of all
steps) and `noise_std` of normal noise."""
ALGORITHMS = {"dqn": DQN, "ppo": PPO, "sac": SAC, "td3": TD3}


class Remembering(EvalCallback):
    """Keeps the curve."""

    curve: list[tuple[int, float]]

    def _on_step(self) -> bool:
        goes_on = super()._on_step()
        if self.n_calls % self.eval_freq == 0:
            self.curve.append((self.num_timesteps, self.last_mean_reward))
        return goes_on


def as_arguments(tuned: dict[str, Any], training: VecEnv, max_env_steps: int) -> dict[str, Any]:
    """The settings as the algorithms take them."""
    settings = dict(tuned)
    if (exploring := settings.pop("exploration_env_steps", None)) is not None:
        settings["exploration_fraction"] = min(1.0, exploring / max_env_steps)
    if (std := settings.pop("noise_std", None)) is not None:
        numbers = training.action_space.shape
        settings["action_noise"] = NormalActionNoise(np.zeros(numbers), np.full(numbers, std))
    return settings


def main() -> None:
    """Train and print one JSON line. One torch thread: a second gains nothing on these networks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-steps", type=int, required=True)
    parser.add_argument("--interval-env-steps", type=int, required=True)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--stop-value", type=float)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = dict(TUNED[asked.algorithm, asked.env])
    n_envs, normalize = settings.pop("n_envs", 1), settings.pop("normalize", False)
    # As many environments as episodes, so that an evaluation is as short as it can be.
    training: VecEnv = make_vec_env(asked.env, n_envs=n_envs, seed=asked.seed)
    evaluated: VecEnv = make_vec_env(asked.env, n_envs=asked.episodes, seed=asked.seed + 1_000)
    if normalize:
        training = VecNormalize(training, gamma=settings.get("gamma", 0.99))
        evaluated = VecNormalize(evaluated, training=False, norm_reward=False)
    solved = None
    if asked.stop_value is not None:
        solved = StopTrainingOnRewardThreshold(asked.stop_value, verbose=0)
    evaluation = Remembering(
        evaluated,
        callback_on_new_best=solved,
        n_eval_episodes=asked.episodes,
        eval_freq=max(1, asked.interval_env_steps // n_envs),
        verbose=0,
        deterministic=True,
    )
    evaluation.curve = []
    settings = as_arguments(settings, training, asked.max_env_steps)
    model = ALGORITHMS[asked.algorithm]("MlpPolicy", training, seed=asked.seed, device="cpu", **settings)
    model.learn(asked.max_env_steps, callback=evaluation)
    best = evaluation.best_mean_reward
    facts = {
        "reached": asked.stop_value is None or bool(best >= asked.stop_value),
        "env_steps": model.num_timesteps,
        "curve": evaluation.curve,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
