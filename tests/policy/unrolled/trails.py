"""An environment whose observations show the episode, the step and the last action.

Length and end of an episode and rewards follow from these numbers alone, so that any process can check a row.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.environments.spaces import Array

LONGEST = 13
FIRST_ACTION, ACTIONS = 4, 3
"""No action is 0, which means none."""
SIDE = 32
"""Side of the frames of image observations: large enough to be stored once each."""
HALF = 1 << 20
"""An episode's key is drawn as two halves, each exact in float32."""


def length_of(key: Array) -> Array:
    """Steps of the episode."""
    return np.asarray(1 + key % LONGEST)


def terminates(key: Array) -> Array:
    """True if the episode ends by termination; some are truncated in the same step."""
    return np.asarray(key // LONGEST % 3 != 1)


def truncates(key: Array) -> Array:
    """True if the episode is truncated."""
    return np.asarray(key // LONGEST % 3 != 0)


def reward_of(key: Array, step: Array, action: Array) -> Array:
    """Reward of step `step` (from 0) with this action: never 0, and exact in float32."""
    return np.asarray((1 + (key % 1009 * 31 + step * 7 + action * 3) % 997) / 8.0)


def legal_at(key: Array, step: Array) -> Array:
    """True for legal actions after `step` steps, bool […, actions]: at least one."""
    number = 1 + (key + 5 * step) % (2**ACTIONS - 1)
    return np.asarray(number[..., None] >> np.arange(ACTIONS) & 1 == 1)


class Trail(gymnasium.Env[Array, Any]):
    """Observes [key // HALF, key % HALF, steps taken, last action]: as numbers, or in the newest two frames. An action
    that is not legal is an error; none is once the episode is over."""

    action_space = spaces.Discrete(ACTIONS, start=FIRST_ACTION)

    def __init__(self, *, images: bool, notes: Path) -> None:
        """Records each step in a file of its process in `notes`, see `noted`."""
        self._images = images
        self.observation_space = (
            spaces.Box(0, 255, (2, SIDE, SIDE), np.uint8) if images else spaces.Box(0, HALF, (4,), np.float32)
        )
        self._notes = notes / f"taken-{os.getpid()}"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        high, low = (int(self.np_random.integers(HALF)) for _ in range(2))
        self._key, self._step, self._action = high * HALF + low, 0, 0
        self._frame = np.zeros((SIDE, SIDE), np.uint8)
        return self._seen(), self._info()

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._action = int(action)
        now = np.array([self._key, self._step, self._action])
        if not self._info()["action_mask"][self._action - FIRST_ACTION]:
            raise ValueError(f"action {self._action} is not legal")
        with self._notes.open("ab") as file:
            file.write(now.tobytes())
        self._step += 1
        over = bool(self._step == length_of(now[0]))
        terminated, truncated = over and bool(terminates(now[0])), over and bool(truncates(now[0]))
        return self._seen(), float(reward_of(*now)), terminated, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        key, step = np.array(self._key), np.array(self._step)
        return {"action_mask": (legal_at(key, step) & (step < length_of(key))).astype(np.int8)}

    def _seen(self) -> Array:
        numbers = [self._key // HALF, self._key % HALF, self._step, self._action]
        if not self._images:
            return np.array(numbers, np.float32)
        before, self._frame = self._frame, np.zeros((SIDE, SIDE), np.uint8)
        self._frame[0, :16] = np.array(numbers, "<u4").view(np.uint8)
        return np.stack([before, self._frame])


def make(notes: str, images: bool = False) -> Trail:
    """For `env.make` of a config."""
    return Trail(images=images, notes=Path(notes))


def numbers_in(observations: Array) -> Array:
    """Return the numbers in the observations […], int64 […, 4]."""
    if observations.dtype != np.uint8:
        return observations.astype(np.int64)
    return np.ascontiguousarray(observations[..., -1, 0, :16]).view("<u4").astype(np.int64)


def noted(notes: Path, kind: str) -> Array:
    """Return int64 [n, 3]: key, step and action that processes have written down as `taken`, or as `learned`."""
    files = sorted(notes.glob(f"{kind}-*"))
    return np.concatenate([np.empty((0, 3), np.int64), *(np.fromfile(file, np.int64).reshape(-1, 3) for file in files)])
