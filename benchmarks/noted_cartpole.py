"""CartPole whose vector notes when it is stepped first. Evaluations play single environments, and are not noted."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from numpy.typing import NDArray

ENV_ID = "remuda.benchmarks.noted_cartpole:NotedCartPole-v1"
"""What `env.id` is to be."""
FILE = "REMUDA_FIRST_STEP"
"""The environment variable that names the file for the time of the first step, in seconds since 1970."""

_Step = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class NotedCartPole(CartPoleVectorEnv):
    """Of all processes the first one to take a step writes the file."""

    _stepped = False

    def step(self, action: NDArray[np.integer[Any]]) -> _Step:
        if not self._stepped:
            self._stepped = True
            _note(os.environ[FILE])
        return super().step(action)


def _note(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return
    os.write(descriptor, repr(time.time()).encode())
    os.close(descriptor)


gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  # its annotations are partial
    id=ENV_ID.partition(":")[2],
    entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
    vector_entry_point=f"{__name__}:{NotedCartPole.__name__}",
    max_episode_steps=500,
)
