"""stable-baselines3: PPO on CartPole-v1, settings tuned by its zoo, seconds from process start to a return of 475."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env

NUM_ENVS = 8
EVALUATION_EPISODES = 10
EVALUATION_INTERVAL_ENV_STEPS = 5_000
MAX_ENV_STEPS = 100_000
STOP_VALUE = 475


def main() -> None:
    """Train and print one JSON line. One torch thread: a second gains nothing on this network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    torch.set_num_threads(1)
    # As many environments as episodes, so that an evaluation is as short as it can be.
    evaluation = EvalCallback(
        make_vec_env("CartPole-v1", n_envs=EVALUATION_EPISODES, seed=seed + 1_000),
        callback_on_new_best=StopTrainingOnRewardThreshold(STOP_VALUE, verbose=0),
        n_eval_episodes=EVALUATION_EPISODES,
        eval_freq=EVALUATION_INTERVAL_ENV_STEPS // NUM_ENVS,
        verbose=0,
    )
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=NUM_ENVS, seed=seed),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=_falling_from(0.001),
        clip_range=_falling_from(0.2),
        seed=seed,
        device="cpu",
    )
    model.learn(MAX_ENV_STEPS, callback=evaluation)
    facts = {
        "value": _since_process_start_s(),
        "reached": bool(evaluation.best_mean_reward >= STOP_VALUE),
        "env_steps": model.num_timesteps,
        "gymnasium": gymnasium.__version__,
    }
    print(json.dumps(facts))


def _falling_from(start: float) -> Callable[[float], float]:
    return lambda remaining: start * remaining


def _since_process_start_s() -> float:
    with open("/proc/self/stat") as file:
        started_ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
