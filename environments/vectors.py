"""Vectors of environments outside Python: an environment's own vectorised class, and envpool's.

envpool has classic control, Box2D and MuJoCo with gymnasium's ids, written again in C++. Its random numbers, and so the
numbers of a run, differ from gymnasium's.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeAlias, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit, counted, shortened
from remuda.environments.atari import LIFE_LOST, AtariVector, atari_settings, is_atari
from remuda.environments.errors import EnvironmentBuildError, UnusableResultError, ending_hangs, unbuildable
from remuda.environments.lanes import AGENT, Bools, Group, Lanes, Vectorization
from remuda.environments.legal_actions import ACTION_MASK
from remuda.environments.make import check_spaces, known_spec, make_single, obstacle_to_native
from remuda.environments.processes import usable_cores
from remuda.environments.spaces import Array, Space

Vector: TypeAlias = VectorEnv[Array, Array, Array]
LEAST_ENVS = 4
"""Least number of environments for which `auto` takes a pool. With 4 a pool was faster in every timed environment, with
2 in most, with 1 in none."""
_WRITTEN_AGAIN = ("gymnasium.envs.classic_control.", "gymnasium.envs.box2d.", "gymnasium.envs.mujoco.")


def make_vector(
    env: EnvConfig,
    *,
    num_envs: int,
    source_dir: str | None,
    sharers: int = 1,
    chosen: Callable[[str], None] = lambda why: None,
) -> Vector | None:
    """Build `num_envs` environments stepped together outside Python; None if `env.vectorization` selects objects in
    Python. `sharers` workers share the cores. `chosen` receives a line about the choice and its reason.

    The step after the end of an episode is a reset (gymnasium's AutoresetMode.NEXT_STEP). Only this mode gives the last
    observation of an episode, needed for bootstrapping truncated episodes.

    Raises EnvironmentBuildError for the reasons of make_single, and for a vector that does not exist, refuses the
    settings, or resets in another way.
    """
    if env.vectorization in ("native", "auto"):
        obstacle = obstacle_to_native(env)
        if obstacle is None:
            chosen(f"environments: native, the vectorised class of {env.id}")
            return _native(env, num_envs)
        if env.vectorization == "native":
            raise EnvironmentBuildError(f"env.vectorization = native: {obstacle}; set it to auto, sync or async")
    if env.vectorization == "envpool":
        return _pool(env, source_dir, num_envs=num_envs, sharers=sharers, chosen=chosen, why="as the config says")
    if env.vectorization == "auto" and auto_takes_pool(env, num_envs):
        try:
            why = f"which is installed and knows {env.id}"
            return _pool(env, source_dir, num_envs=num_envs, sharers=sharers, chosen=chosen, why=why)
        except EnvironmentBuildError:  # envpool is not installed, or has a different environment under this id
            pass
    return None


class VectorCopies:
    """Copies with one agent each, stepped by a gymnasium vector. Only the vector of Atari takes a seed for each copy;
    further vectors take the first seed."""

    one_agent = True

    def __init__(self, vector: Vector, name: str) -> None:
        """`name`: of the environment, for errors."""
        self.vector, self._name = vector, name
        self.num_envs = vector.num_envs
        self.clips_rewards = isinstance(vector, AtariVector) and vector.clips_rewards
        self.vectorization: Vectorization = "envpool" if isinstance(vector, EnvpoolVector) else "native"
        self.lanes: tuple[Lanes, ...] = (Lanes.empty(Group((AGENT,), *single_spaces(vector)), self.num_envs),)
        self._none: Bools = np.zeros(self.num_envs, np.bool_)
        self.begun = self.replaced = self._none
        self.any_replaced = False
        self._resets = 0
        """Number of copies reset by the next step."""

    def reset(self, seeds: Sequence[int] | None) -> None:
        (lanes,) = self.lanes
        seed: Any = None if seeds is None else list(seeds) if isinstance(self.vector, AtariVector) else seeds[0]
        lanes.observations, lanes.info = self.vector.reset(seed=seed)
        lanes.over, lanes.masked, self._resets = self._none, ACTION_MASK in lanes.info, 0
        self.begun = ~self._none

    def step(self, actions: Sequence[Array]) -> int:
        """Take a step. Raises UnusableResultError for rewards that are no numbers and ends that are no truth values."""
        lanes = self.lanes[0]
        lanes.observations, lanes.reward, terminated, truncated, info = self.vector.step(actions[0])
        lanes.terminated, lanes.truncated = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
        if lanes.reward.dtype.kind not in "fiub":
            raise self._unusable("rewards", lanes.reward, "a number each")
        lanes.info, lanes.masked, lanes.life_lost = info, ACTION_MASK in info, info.get(LIFE_LOST)
        stepped, self.begun = self.num_envs - self._resets, lanes.over
        lanes.over = lanes.terminated | lanes.truncated
        self._resets = int(np.count_nonzero(lanes.over))
        return stepped

    def _flags(self, flags: Array, name: str) -> Bools:
        """Return ends of episodes as bools. Raises UnusableResultError."""
        if flags.dtype.kind != "b" and not ((flags == 0) | (flags == 1)).all():
            raise self._unusable(name, flags, "True or False each")
        return flags.astype(np.bool_, copy=False)

    def _unusable(self, name: str, values: Array, wanted: str) -> UnusableResultError:
        shown = shortened(str(values.tolist()), 60)
        return UnusableResultError(
            f"the vectorised class of {self._name} returned {name} = {shown}, and {wanted} is expected"
        )

    def tell_legal_actions(self) -> None:
        """Do nothing: vectors always report legal actions."""

    def close(self) -> None:
        self.vector.close()


def single_spaces(vector: Vector) -> tuple[Space, Space]:
    """Return the observation and the action space of one environment of the vector."""
    untyped: Any = vector  # gymnasium leaves the spaces' element type open
    return cast(Space, untyped.single_observation_space), cast(Space, untyped.single_action_space)


def _pool(
    env: EnvConfig,
    source_dir: str | None,
    *,
    num_envs: int,
    sharers: int,
    chosen: Callable[[str], None],
    why: str,
) -> EnvpoolVector:
    """Build a vector of envpool. Raises EnvironmentBuildError."""
    package(env)  # before a copy is built
    copy = make_single(env, source_dir=source_dir)
    copy.close()
    threads = min(max(usable_cores() // sharers, 1), num_envs)
    of_single = cast("tuple[Space, Space]", (copy.observation_space, copy.action_space))
    pool = EnvpoolVector(env, num_envs=num_envs, threads=threads, spaces=of_single)
    chosen(f"environments: envpool, {counted(threads, 'thread')}, {why}")
    return pool


def _native(env: EnvConfig, num_envs: int) -> Vector:
    spec = known_spec(env)
    if is_atari(spec):
        settings = atari_settings(env, spec)
        try:
            return _checked(AtariVector(settings, num_envs), env)
        except EnvironmentBuildError:
            raise
        except Exception as error:  # anything that the emulator raises because of its settings
            raise unbuildable(env, error) from error
    kwargs: dict[str, Any] = dict(env.kwargs)
    if env.max_episode_steps is not None:
        kwargs["max_episode_steps"] = env.max_episode_steps
    try:
        with NoExit(), ending_hangs(env):
            vector = gymnasium.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    except Exception as error:  # anything that the environment's constructor raises
        raise unbuildable(env, error) from error
    return _checked(vector, env)


def _checked(vector: Vector, env: EnvConfig) -> Vector:
    mode = vector.metadata.get("autoreset_mode")
    try:
        check_spaces(*single_spaces(vector))
        if mode is not AutoresetMode.NEXT_STEP:
            raise EnvironmentBuildError(
                f"the vectorised class of {env.id} resets in mode {mode}, but Remuda needs NEXT_STEP, which gives the "
                "last observation of an episode: set env.vectorization to sync or async"
            )
    except EnvironmentBuildError:
        vector.close()
        raise
    return vector


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
