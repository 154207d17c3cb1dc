"""Environments of the package envpool: a vector stepped by C++ threads outside Python.

envpool has classic control, Box2D and MuJoCo with gymnasium's ids, written again in C++. Its random numbers, and so the
numbers of a run, differ from gymnasium's.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from remuda.config.environment import EnvConfig
from remuda.environments.errors import EnvironmentBuildError, unbuildable
from remuda.environments.make import known_spec
from remuda.environments.spaces import Array, Space

LEAST_ENVS = 4
"""Least number of environments for which `auto` takes a pool. With 4 a pool was faster in every timed environment, with
2 in most, with 1 in none."""
_WRITTEN_AGAIN = ("gymnasium.envs.classic_control.", "gymnasium.envs.box2d.", "gymnasium.envs.mujoco.")


class EnvpoolVector(VectorEnv[Array, Array, Array]):
    """Steps `num_envs` environments of one id in `threads` threads; resets as in AutoresetMode.NEXT_STEP.

    A reset with seeds begins a new pool, whose environments derive their seeds from the first seed. `info` has the
    numbers reported by the pool for each environment.
    """

    def __init__(self, env: EnvConfig, *, num_envs: int, threads: int, spaces: tuple[Space, Space]) -> None:
        """`spaces`: observation and action space of gymnasium's environment of this id, used for evaluations.

        Raises EnvironmentBuildError if envpool is not installed, does not know the id, refuses the settings, or has
        different observations or actions.
        """
        self._envpool, self._env, self._threads = package(env), env, threads
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space, self.action_space = (batch_space(space, num_envs) for space in spaces)
        self._dtype = spaces[0].dtype
        self._pool = self._new_pool(seed=0)
        try:
            self._action_dtype = _checked_actions(env, self._pool, spaces).dtype
        except EnvironmentBuildError:
            self._pool.close()
            raise

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset all environments. The first of several seeds counts; None continues the present random streams."""
        if seed is not None:
            self._pool.close()
            self._pool = self._new_pool(seed=seed if isinstance(seed, int) else seed[0])
        with _bounds_may_be_rounded():  # it makes its spaces once more
            observations, info = self._pool.reset()
        return self._observations(observations), info

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step all environments. An environment with a finished episode is reset instead, with reward 0."""
        given = np.ascontiguousarray(actions, self._action_dtype)
        observations, reward, terminated, truncated, info = self._pool.step(given)
        return self._observations(observations), reward.astype(np.float64), terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self._pool.close()

    def _observations(self, observations: Array) -> Array:
        """Return the observations in the dtype and shape of the space."""
        return observations.astype(self._dtype, copy=False)

    def _new_pool(self, *, seed: int) -> Any:
        settings: dict[str, Any] = dict(self._env.kwargs)
        if self._env.max_episode_steps is not None:
            settings["max_episode_steps"] = self._env.max_episode_steps
        try:
            with _bounds_may_be_rounded():
                return self._envpool.make(
                    self._env.id,
                    env_type="gymnasium",
                    num_envs=self.num_envs,
                    num_threads=self._threads,
                    seed=seed % 2**31,
                    **settings,
                )
        except Exception as error:  # anything that it raises because of the settings
            raise unbuildable(self._env, error) from error


def auto_takes_pool(env: EnvConfig, num_envs: int) -> bool:
    """Return True if `auto` asks for a pool: for at least LEAST_ENVS of gymnasium's own classic control, Box2D or
    MuJoCo environments, unchanged.

    Building the pool shows if envpool is installed and has the id. Other environments may report more in `info` than a
    pool. Nothing is timed: numbers of a run must not depend on the load of the machine.
    """
    if env.id is None or env.kwargs or env.episode_info or num_envs < LEAST_ENVS:
        return False
    entry = known_spec(env).entry_point
    return isinstance(entry, str) and entry.startswith(_WRITTEN_AGAIN)


def package(env: EnvConfig) -> Any:
    """Return the package, which must know the environment. Raises EnvironmentBuildError."""
    asked = "env.vectorization = envpool"
    if env.id is None:
        raise EnvironmentBuildError(f"{asked}: env.make returns single environments; set it to auto, sync or async")
    try:
        package: Any = importlib.import_module("envpool")
    except ImportError as error:
        raise EnvironmentBuildError(f"{asked} needs a package: pip install 'remuda[envpool]' ({error})") from error
    known = cast("list[str]", package.list_all_envs())
    if env.id not in known:
        near = get_close_matches(env.id, known, n=1)
        hint = f"; the nearest that it knows is {near[0]}" if near else ""
        raise EnvironmentBuildError(f"{asked}: envpool does not know {env.id}{hint}; set it to auto, sync or async")
    return package


def _checked_actions(env: EnvConfig, pool: Any, spaces: tuple[Space, Space]) -> Space:
    """Return the pool's action space. Raises EnvironmentBuildError if the pool's spaces differ from those of
    evaluations."""
    with _bounds_may_be_rounded():
        pools: tuple[Space, Space] = (pool.observation_space, pool.action_space)
    for what, ours, theirs in zip(("observations", "actions"), pools, spaces, strict=True):
        same = ours.shape == theirs.shape and getattr(ours, "n", None) == getattr(theirs, "n", None)
        if not same:
            raise EnvironmentBuildError(
                f"env.vectorization = envpool: its {env.id} has {what} {ours}, and gymnasium's, which evaluations "
                f"play, {theirs}; set it to auto, sync or async"
            )
    return pools[1]


@contextmanager
def _bounds_may_be_rounded() -> Generator[None]:
    """Suppress gymnasium's warning about envpool's spaces, whose bounds are float64."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting")
        yield
