"""Tiny serial runs with several policies, in an environment whose agents leave at different steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import yaml

from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.tests.environments.leaving import Leaving

NUM_ENVS, LENGTHS = 2, (3, 7, 5)

GAME = """
from remuda.tests.environments.leaving import Leaving

MADE = []

def make(lengths, fails_at=None):
    game = Leaving(lengths, fails_at=fails_at)
    MADE.append(game)
    return game
"""

SEVERAL: dict[str, Any] = {
    "name": "several",
    "seed": 3,
    "env": {"kind": "pettingzoo", "make": "leaving_game:make", "vectorization": "sync", "num_envs": NUM_ENVS,
            "kwargs": {"lengths": list(LENGTHS)}},
    "policy": {"type": "dqn", "hidden": [8], "epsilon_decay_env_steps": 300, "target_update_iters": 10},
    "policies": {
        "ends": {"agents": ["a0", "a2"]},
        "middle": {"agents": ["a1"], "policy": {"type": "ppo", "hidden": [8], "horizon_steps": 8, "minibatches": 1},
                   "learner": {"learning_rate": 0.01}},
    },
    "learner": {"batch_size": 8, "publish_interval_iters": 5, "prefetch_batches": 4},
    "collector": {"count": 1, "chunk_env_steps": 12},
    "evaluator": {"episodes": 3, "interval_env_steps": 100},
    "buffer": {"capacity": 300, "min_rows": 40, "samples_per_insert": 2},
    "checkpoint": {"interval_env_steps": 150, "keep": 3},
    "stop": {"max_env_steps": 320},
    "log": {"interval_train_iters": 10, "progress_interval_env_steps": 50, "buffer_interval_samples": 20,
            "buffer_interval_s": 1.0},
}  # fmt: skip
"""DQN for a0 and a2, PPO for a1."""


def several_config(folder: Path, *overrides: str, **settings: Any) -> ExperimentConfig:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "leaving_game.py").write_text(GAME)
    path = folder / "several.yaml"
    path.write_text(yaml.safe_dump(SEVERAL | settings))
    return load_config(path, overrides=list(overrides)).config


def forget_games() -> None:
    """So that the next run's environments are the first."""
    module = sys.modules.get("leaving_game")
    if module is not None:
        cast("Any", module).MADE.clear()


def collectors_games() -> list[Leaving]:
    """Those of the collector: after the first, which is asked for its agents, a run makes these first."""
    made = cast("list[Leaving]", cast("Any", sys.modules["leaving_game"]).MADE)
    return made[1 : 1 + NUM_ENVS]


def evaluators_games() -> list[Leaving]:
    """Those of the evaluator, which a run makes next."""
    return cast("list[Leaving]", cast("Any", sys.modules["leaving_game"]).MADE)[1 + NUM_ENVS :]
