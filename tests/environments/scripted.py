"""A random environment that keeps a log of what really happened in it, and a policy that is a plain function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from remuda.environments.spaces import Array
from remuda.tests.policy.algorithms.untaught import Untaught


@dataclass(frozen=True)
class Step:
    """One transition as the environment saw it."""

    obs: tuple[float, ...]
    action: int
    reward: float
    next_obs: tuple[float, ...]
    terminated: bool
    truncated: bool


class ScriptedEnv(gymnasium.Env[Array, Any]):
    """Episodes of random length and ending; every observation [env, episode, step, noise] occurs once."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space: spaces.Space[Any] = spaces.Discrete(3)

    def __init__(self, number: int = 0, *, longest: int = 6) -> None:
        self.number, self.longest = number, longest
        self.log: list[Step] = []
        self.episode = 0
        self.fails_in: int | None = None
        """Raises at this step from now, or returns `bad_reward` if that is set."""
        self.bad_reward: float | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.step_number = self.episode + 1, 0
        self.length = int(self.np_random.integers(1, self.longest + 1))
        self.ending = int(self.np_random.integers(3))
        self.obs = self._observe()
        return self.obs, {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward = float(self.np_random.normal()) + float(action)
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in == 0:
                self.fails_in = None
                if self.bad_reward is None:
                    raise RuntimeError("the simulator broke")
                reward = self.bad_reward
        before, self.step_number = self.obs, self.step_number + 1
        self.obs = self._observe()
        ended = self.step_number == self.length
        terminated, truncated = ended and self.ending != 1, ended and self.ending != 0
        self.log.append(
            Step(tuple(before.tolist()), int(action), reward, tuple(self.obs.tolist()), terminated, truncated)
        )
        return self.obs, reward, terminated, truncated, {}

    def _observe(self) -> Array:
        noise = float(self.np_random.integers(1000)) / 8  # exact in float32
        return np.array([self.number, self.episode, self.step_number, noise])


class SequenceEnv(ScriptedEnv):
    """Observes what no column can hold."""

    observation_space = spaces.Sequence(spaces.Discrete(2))  # type: ignore[assignment]


class SameStepVector(VectorEnv[Array, Array, Array]):
    """A vectorised class that resets in the very step that ends the episode."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (gymnasium's own shape)
    closed_count = 0

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-1, 1, (2,))
        self.single_action_space = spaces.Discrete(2)

    def close_extras(self, **kwargs: Any) -> None:
        SameStepVector.closed_count += 1


class FunctionPolicy(Untaught):
    """Acts by the last number of an observation; explores by drawing from `rng`."""

    def __init__(self) -> None:
        self.batch_sizes: list[int] = []

    def act(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> Array:
        assert observations.dtype == np.float32
        self.batch_sizes.append(len(observations))
        actions: Array = (observations[:, -1] * 8).astype(np.int64) % 3
        if not deterministic and exploration:
            random = rng.random(len(actions)) < exploration["epsilon"]
            actions = np.where(random, rng.integers(3, size=len(actions)), actions)
        return actions
