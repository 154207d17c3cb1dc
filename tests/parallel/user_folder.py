"""A user's own folder: an environment that counts its real steps, among files named like parts of Remuda."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

SMALL_MUZERO = (
    "type: muzero, hidden: [16], latent: 16, simulations: 4, support_size: 20, projection_units: 32, "
    "projection_bottleneck: 16"
)
"""Settings of a policy that learns nothing much, in little time."""
ENVIRONMENT = '''"""A horse that has to pull left or right, as the first number says."""

import os
import time
from pathlib import Path

import gymnasium
import numpy as np

HERE = Path(__file__).parent
(HERE / "steps").mkdir(exist_ok=True)
taken = {}


def count():
    """Steps of this process so far, in a file of its own at any moment, even if the process is killed."""
    pid = os.getpid()
    if pid not in taken:
        taken[pid] = [os.open(HERE / "steps" / str(pid), os.O_WRONLY | os.O_CREAT), 0]
    taken[pid][1] += 1
    os.pwrite(taken[pid][0], b"%012d" % taken[pid][1], 0)
    return taken[pid][1]


class Horse(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, hold_after, fail_after, pause_s, says="", render_mode=None):
        if says:
            print(says)
        self.hold_after, self.fail_after, self.pause_s = hold_after, fail_after, pause_s
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(5, 20))
        return self.look(), {}

    def step(self, action):
        time.sleep(self.pause_s)
        if self.render_mode is not None:
            steps = 0  # a film shows an episode again, and counts nowhere
        else:
            steps = count()
        if self.fail_after is not None and steps > self.fail_after:
            raise RuntimeError("the horse has bolted")
        while self.hold_after is not None and steps > self.hold_after and (HERE / "hold").exists():
            time.sleep(0.01)
        reward = 1.0 if (self.seen[0] > 0) == (action == 1) else 0.0
        self.left -= 1
        return self.look(), reward, self.left == 0, False, {}

    def render(self):
        return np.full((8, 16, 3), 255 if self.seen[0] > 0 else 0, np.uint8)

    def look(self):
        self.seen = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.seen


def make_env(hold_after=None, fail_after=None, pause_s=0.0, says="", render_mode=None):
    return Horse(hold_after, fail_after, pause_s, says, render_mode)
'''

CONFIG: dict[str, dict[str, object]] = {
    "env": {"make": "my_envs:make_env", "num_envs": 4, "vectorization": "sync"},  # no copy is stepped to be timed
    "policy": {"type": "dqn", "hidden": [16, 16], "epsilon_decay_env_steps": 1000},
    "learner": {"batch_size": 32, "publish_interval_iters": 5},
    "collector": {"count": 2, "chunk_env_steps": 32},
    "evaluator": {"count": 1, "episodes": 3, "interval_env_steps": 1000},
    "buffer": {"capacity": 20_000, "min_rows": 200, "samples_per_insert": 4},
    "checkpoint": {"interval_env_steps": 300, "keep": 3},
    "stop": {"max_env_steps": 3000},
    "log": {
        "interval_train_iters": 20,
        "progress_interval_env_steps": 500,
        "buffer_interval_samples": 50,
        "buffer_interval_s": 0.5,
    },
}

HOLD_AFTER = 700
"""Steps after which a collector waits in its environment where it is held: more than an evaluator takes meanwhile."""
HELD: dict[str, dict[str, object]] = {"env": {"kwargs": {"hold_after": HOLD_AFTER}}}
FILMED: dict[str, dict[str, object]] = {"log": {**CONFIG["log"], "film_interval_env_steps": 1000}}
ENDLESS: dict[str, dict[str, object]] = {
    "env": {**CONFIG["env"], "kwargs": {"pause_s": 0.001}},
    "stop": {"max_env_steps": 10_000_000},
}
"""A run that somebody ends. It takes its time, so that it does not use up the cores that what is tested needs."""


@dataclass(frozen=True)
class UserFolder:
    """Where the user keeps their environment and config; runs are started here."""

    root: Path

    @classmethod
    def make(cls, root: Path, changes: Mapping[str, Mapping[str, object]] | None = None) -> UserFolder:
        """Write the files; `changes` go over CONFIG, section by section."""
        root.mkdir(parents=True)
        (root / "my_envs.py").write_text(ENVIRONMENT)
        for name in ("buffer", "learner", "collector", "config"):
            (root / f"{name}.py").write_text(f'raise ImportError("the user\'s own {name}.py was imported")\n')
        sections = {name: {**values, **(changes or {}).get(name, {})} for name, values in CONFIG.items()}
        (root / "horse.yaml").write_text(yaml.safe_dump({"name": "horse", "seed": 3, **sections}))
        return cls(root)

    @property
    def config(self) -> Path:
        """The config file."""
        return self.root / "horse.yaml"

    def steps(self, pid: int) -> int:
        """Environment steps that a process really took."""
        path = self.root / "steps" / str(pid)
        return int(path.read_text() or 0) if path.exists() else 0  # a process may be killed before it wrote a number

    def hold(self) -> None:
        """Let environments wait in `step` once their process has taken `hold_after` steps."""
        (self.root / "hold").touch()

    def held(self, pids: Iterable[int]) -> bool:
        """Whether all these processes wait so."""
        return all(self.steps(pid) > HOLD_AFTER for pid in pids)

    def release(self) -> None:
        """Let them go on."""
        (self.root / "hold").unlink()
