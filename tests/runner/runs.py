"""Tiny serial runs: an environment of the user's own that counts its steps, and what is needed to run it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.runner.serial import RunResult, Start, run

NUM_ENVS = 3
GAVE_WAY = (
    r"BrokenEnvironmentError: environment \d \(walk:make, seed \d+\) broke in step .*: "
    r"RuntimeError: the floor gave way; it is not made again: env\.restarts_per_hour is 0"
)
"""Why a run failed whose environment raises an error (fails_at) and must not be made again."""

# The folder also holds a buffer.py and a learner.py, which are the user's and not ours.
USER_FILES = {
    "buffer.py": "LONGEST = 12\n",
    "learner.py": "raise RuntimeError('this learner.py is nobody\\'s business')\n",
    "walk.py": """
import gymnasium
import numpy as np

from buffer import LONGEST

MADE = []
ENDINGS = {
    "error": RuntimeError("the floor gave way"),
    "exit": SystemExit(0),
}

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-20.0, 20.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fails_at=None, ends_by="error", endless=False):
        self.steps, self.fails_at, self.ends_by, self.endless = 0, fails_at, ends_by, endless
        MADE.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, float(self.np_random.normal())
        self.length = int(self.np_random.integers(2, LONGEST))
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        if self.steps == self.fails_at:
            raise ENDINGS[self.ends_by]
        self.time += 1
        self.place += 1.0 if action else -1.0
        info = {"steps_to_go": self.length - self.time, "side": float(np.sign(self.place))}
        over = (False, False) if self.endless else (self.place > 6.0, self.time >= self.length)
        return self.seen(), -abs(self.place), *over, info

    def seen(self):
        return np.array([self.place, self.time], np.float32)

def make(fails_at=None, ends_by="error", token=None, endless=False):
    return Walk(fails_at, ends_by, endless)
""",
}

TINY: dict[str, Any] = {
    "name": "tiny",
    "seed": 3,
    "env": {"make": "walk:make", "num_envs": NUM_ENVS, "vectorization": "sync"},  # no copy is stepped
    "policy": {"type": "dqn", "hidden": [8, 8], "epsilon_decay_env_steps": 300, "target_update_iters": 10},
    "learner": {"batch_size": 8, "publish_interval_iters": 5, "prefetch_batches": 4},
    "collector": {"chunk_env_steps": 12},
    "evaluator": {"episodes": 4, "interval_env_steps": 100},
    "buffer": {"capacity": 300, "min_rows": 40, "samples_per_insert": 4},
    "checkpoint": {"interval_env_steps": 150, "keep": 2},
    "stop": {"max_env_steps": 400},
    "log": {"interval_train_iters": 10, "progress_interval_env_steps": 50, "buffer_interval_samples": 20,
            "buffer_interval_s": 1.0},
}  # fmt: skip


@dataclass
class Flag:
    """A stop request that comes after it has been looked at so often; never by default."""

    looks: int = 10**9
    reason: str = "the test says so"

    @property
    def ending(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@dataclass
class Ticking:
    """A clock on which a moment passes with every look."""

    now_s: float = field(default=100.0)
    tick_s: float = 0.001

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


def write_user_folder(folder: Path, **settings: Any) -> Path:
    """The user's folder with its config file; `settings` replace whole sections."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in USER_FILES.items():
        (folder / name).write_text(text)
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY | settings))
    return path


def tiny_config(folder: Path, *overrides: str) -> ExperimentConfig:
    path = folder / "tiny.yaml"
    return load_config(path if path.exists() else write_user_folder(folder), overrides=list(overrides)).config


def run_tiny(
    config: ExperimentConfig, start: Start, *, stop: Flag | None = None, clock: Ticking | None = None
) -> RunResult:
    return run(config, start, stop=stop or Flag(), clock=clock or Ticking())


def forget_steps() -> None:
    """So that the next run's environments are the first."""
    module = sys.modules.get("walk")
    if module is not None:
        cast("Any", module).MADE.clear()


def steps_really_taken() -> int:
    """By the environments of the collector: the first that a run makes."""
    made = cast("Any", sys.modules["walk"]).MADE
    return sum(int(env.steps) for env in made[:NUM_ENVS])
