"""RLlib: PPO on CartPole-v1 with its tuned example's settings, seconds from the process start to a return of 475."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

CAP_S = 150.0
EVALUATION_EPISODES = 10
STOP_VALUE = 475.0


def main() -> None:
    """Train until an evaluation reaches the value or CAP_S are over, and print one JSON line.

    Two cores: one env runner beside the learner, which is in the driver, as is the evaluation after every iteration of
    4000 steps, ten episodes at once. A run that is cut off prints the cap, which flatters it.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    best, iterations = 0.0, 0
    with contextlib.redirect_stdout(sys.stderr):
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        algorithm = (
            PPOConfig()
            .environment("CartPole-v1")
            .env_runners(num_env_runners=1)
            .training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
            .rl_module(
                model_config=DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True)
            )
            .evaluation(
                evaluation_interval=1,
                evaluation_num_env_runners=0,
                evaluation_duration=EVALUATION_EPISODES,
                evaluation_duration_unit="episodes",
                evaluation_config={"explore": False, "num_envs_per_env_runner": EVALUATION_EPISODES},
            )
            .debugging(seed=seed, log_level="ERROR")
            .build_algo()
        )
        while best < STOP_VALUE and _since_process_start_s() < CAP_S:
            result = algorithm.train()
            iterations += 1
            best = max(best, float(result["evaluation"]["env_runners"]["episode_return_mean"]))
    value_s = _since_process_start_s()
    print(json.dumps({"value": value_s, "reached": best >= STOP_VALUE, "iterations": iterations, "best": best}))
    sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr):
        algorithm.stop()
        ray.shutdown()


def _since_process_start_s() -> float:
    with open("/proc/self/stat") as file:
        started_ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
