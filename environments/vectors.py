"""Vectors of environments outside Python: an environment's own vectorised class, and envpool's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit, counted, shortened
from remuda.environments.atari import LIFE_LOST, AtariVector, atari_settings, is_atari
from remuda.environments.envpool_vector import EnvpoolVector, auto_takes_pool, package
from remuda.environments.errors import EnvironmentBuildError, unbuildable
from remuda.environments.faults import UnusableResultError
from remuda.environments.lanes import AGENT, Bools, Group, Lanes, Vectorization
from remuda.environments.legal_actions import ACTION_MASK
from remuda.environments.make import check_spaces, known_spec, make_single, obstacle_to_native
from remuda.environments.processes import usable_cores
from remuda.environments.spaces import Array, Space

Vector: TypeAlias = VectorEnv[Array, Array, Array]


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
        with NoExit():
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
