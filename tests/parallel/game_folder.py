"""A user's own game for two, which counts its real steps as the environment of UserFolder does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from remuda.tests.parallel.user_folder import CONFIG, HOLD_AFTER, UserFolder

GAME = '''"""Two horses pull left or right, as the first number that each sees says. The small one is tired first."""

import time

import gymnasium
import numpy as np
from my_envs import HERE, count

LENGTHS = {"small": 6, "tall": 10}


class Pull:
    possible_agents = tuple(LENGTHS)

    def __init__(self, hold_after, pause_s):
        self.hold_after, self.pause_s = hold_after, pause_s
        self.agents = []

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.taken = list(self.possible_agents), 0
        return self.look(), {agent: {} for agent in self.agents}

    def step(self, actions):
        time.sleep(self.pause_s)
        steps = count()
        while self.hold_after is not None and steps > self.hold_after and (HERE / "hold").exists():
            time.sleep(0.01)
        played, seen = self.agents, self.seen
        self.taken += 1
        rewards = {a: float((seen[a][0] > 0) == (actions[a] == 1)) / LENGTHS[a] for a in played}
        over = {a: self.taken == LENGTHS[a] for a in played}
        observations = self.look()
        self.agents = [a for a in played if not over[a]]
        return observations, rewards, over, dict.fromkeys(played, False), {a: {} for a in played}

    def close(self):
        pass

    def look(self):
        self.seen = {agent: self.random.uniform(-1, 1, 3).astype(np.float32) for agent in self.agents}
        return self.seen


def make_game(hold_after=None, pause_s=0.0):
    return Pull(hold_after, pause_s)
'''
HELD_GAME: dict[str, dict[str, object]] = {
    "env": {
        "make": "my_game:make_game",
        "kind": "pettingzoo",
        "vectorization": "sync",
        "num_envs": 4,
        "kwargs": {"hold_after": HOLD_AFTER},
    },
    "policy": {"type": "dqn", "hidden": [16], "discount": 0.5, "n_step": 1, "epsilon_decay_env_steps": 1000},
    "learner": {"batch_size": 32, "learning_rate": 0.003, "publish_interval_iters": 5},
    "evaluator": {"count": 1, "episodes": 20, "interval_env_steps": 2000},
    "buffer": {"capacity": 50_000, "min_rows": 200, "samples_per_insert": 4},
    "stop": {"max_env_steps": 5000},
}
"""All agents share a policy that learns all there is, and no payload file is deleted."""


def make_game_folder(
    root: Path, policies: dict[str, object] | None = None, changes: Mapping[str, Mapping[str, object]] | None = None
) -> UserFolder:
    """As UserFolder.make, with the game; `changes` go over HELD_GAME, section by section."""
    user = UserFolder.make(root, {**HELD_GAME, **(changes or {})})
    (root / "my_game.py").write_text(GAME)
    more: dict[str, object] = {} if policies is None else {"policies": policies}
    more |= {name: values for name, values in (changes or {}).items() if name not in CONFIG}
    user.config.write_text(user.config.read_text() + (yaml.safe_dump(more) if more else ""))
    return user
