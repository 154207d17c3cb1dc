"""stable-baselines3: SAC on HalfCheetah-v5 with its defaults, which are the paper's: updates per second, or a run."""

from __future__ import annotations

import argparse
import json
import time

import torch
from stable_baselines3 import SAC

WARM_UP, UPDATES = 100, 1_000


def main() -> None:
    """Measure and print one JSON line. One torch thread: a second gains little on this network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("updates", "run"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--env-steps", type=int, default=1_000)
    parser.add_argument("--learning-starts", type=int, default=1_000)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model = SAC("MlpPolicy", "HalfCheetah-v5", seed=asked.seed, device="cpu", learning_starts=asked.learning_starts)
    begin_s = time.perf_counter()
    model.learn(asked.env_steps)
    value = time.perf_counter() - begin_s
    if asked.what == "updates":
        model.train(WARM_UP, batch_size=256)
        begin_s = time.perf_counter()
        model.train(UPDATES, batch_size=256)
        value = UPDATES / (time.perf_counter() - begin_s)
    print(json.dumps({"value": value, "env_steps": model.num_timesteps}))


if __name__ == "__main__":
    main()
