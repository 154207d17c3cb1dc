"""Files of steps with drawn numbers."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np

from remuda.collector.steps import Slots, StepsWriter
from remuda.environments.lanes import Group, Lanes

NUM_ENVS, AGENTS = 3, ("fox", "hen")


def group(actions: int = 6) -> Group:
    space = gymnasium.spaces.Box(-1.0, 1.0, (5,), np.float32)
    return Group(AGENTS, space, gymnasium.spaces.Box(-1.0, 1.0, (actions,), np.float32))


def drawn(slots: int, *, seed: int = 0, actions: int = 6) -> Slots:
    rng, lanes = np.random.default_rng(seed), NUM_ENVS * len(AGENTS)
    over = rng.random((slots, lanes)) < 0.2
    real = np.concatenate([np.zeros((1, lanes), np.bool_), ~over[:-1]])
    return Slots(
        rng.normal(size=(slots, lanes, actions)).astype(np.float32),
        np.where(real, rng.normal(size=(slots, lanes)), 0.0),
        rng.normal(size=(slots, lanes, 5)),
        real,
        over,
        rng.random((slots, lanes)) < 0.5,
        np.arange(slots) == 0,
    )


def write_part(folder: Path, *, chunks: int, slots: int = 7, actions: int = 6, flush: bool = True) -> Path:
    """Write chunks of one collector, and return the only file in the folder's steps/."""
    writer = StepsWriter(folder / "steps", index=0, generation=0, warn=print, clock=lambda: 0.0)
    writer.begin({"": Lanes.empty(group(actions), NUM_ENVS)}, ["<f4"], task=0, kwargs_json="")
    for chunk in range(chunks):
        writer.add("w", 1, chunk, 10 * chunk, [drawn(slots, seed=chunk, actions=actions)])
        if flush:
            writer.flush()
    writer.close()
    (path,) = (folder / "steps").iterdir()
    return path
