"""DI-engine, serial mode: DQN on CartPole-v0 with its own config, seconds from start of training to a return of 195."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pickle  # noqa: TID251  (its result, written by this very process, is a pickle)
import resource
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path

from ding.entry import serial_pipeline
from ding.worker.learner import LearnerHook, register_learner_hook

CONFIG = "dizoo.classic_control.cartpole.config.cartpole_dqn_config"
MAX_ENV_STEPS = 100_000
_started_s: list[float] = []


class StartOfTraining(LearnerHook):
    """Notes the time when everything is built and the loop is about to begin."""

    def __init__(self, *args: object, ext_args: object = None, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    def __call__(self, engine: object) -> None:
        """Learner hooks are called with the learner."""
        _started_s.append(time.perf_counter())


def main() -> None:
    """Train in a temporary folder, quietly, and print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    register_learner_hook("start_of_training", StartOfTraining)
    module = importlib.import_module(CONFIG)
    config, create = deepcopy(module.main_config), deepcopy(module.create_config)
    config.policy.learn.learner = {
        "hook": {"clock": {"name": "clock", "type": "start_of_training", "priority": 1, "position": "before_run"}}
    }
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        os.chdir(folder)
        serial_pipeline((config, create), seed=seed, max_env_step=MAX_ENV_STEPS)
        elapsed_s = time.perf_counter() - _started_s[0]
        (result_file,) = Path(folder).glob("*/result.pkl")
        result = pickle.loads(result_file.read_bytes())  # noqa: S301
        os.chdir("/")
    facts = {
        "value": elapsed_s,
        "reached": bool(result["stop"]),
        "env_steps": int(result["env_step"]),
        "updates": int(result["train_iter"]),
        "updates_per_s": result["train_iter"] / elapsed_s,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "seed": seed,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
