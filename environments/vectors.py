"""Builds the vector of environments of a config, and hides the differences between the ways of stepping it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.atari import AtariVector, atari_settings, is_atari
from remuda.environments.envpool_vector import EnvpoolVector, auto_takes_pool, package
from remuda.environments.errors import EnvironmentBuildError, unbuildable
from remuda.environments.faults import RestartLimit
from remuda.environments.make import check_spaces, make_single
from remuda.environments.probe import Remarks
from remuda.environments.processes import ProcessVector
from remuda.environments.registered import known_spec, obstacle_to_native
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.spaces import Array, Space
from remuda.environments.vectorizing import StepTimer, choose_processes, time_step, usable_cores

Vector: TypeAlias = VectorEnv[Array, Array, Array]
Vectorization = Literal["native", "sync", "async", "envpool"]


def make_vector(
    env: EnvConfig,
    *,
    num_envs: int,
    source_dir: str | None,
    sharers: int = 1,
    chosen: Callable[[str], None] = lambda why: None,
    timer: StepTimer = time_step,
    broke: Callable[[str], None] = lambda text: None,
    remark: Callable[[str], None] | None = None,
) -> Vector:
    """Build `num_envs` environments that step together, in the way of `env.vectorization`.

    A finished environment is always reset by the next step (gymnasium's AutoresetMode.NEXT_STEP). Only so the last
    observation of an episode is available, which a truncated episode needs for bootstrapping. Objects and processes
    give the same numbers.

    `auto` assumes that `sharers` workers like this one share the cores, and times a step with `timer`. `chosen` gets
    one line about the choice and its reason.

    An environment in objects or processes that breaks is made again, alone, within env.restarts_per_hour: `broke` gets
    a text about it for the log. `remark` (default: `broke`) gets a text for each kind of misfit between the first
    observations of objects and their space.

    Raises EnvironmentBuildError as make_single does, and for a native vector that does not exist, does not take the
    settings, or resets in another way.
    """
    if env.vectorization in ("native", "auto"):
        obstacle = obstacle_to_native(env)
        if obstacle is None:
            chosen(f"environments: native, the vectorised class of {env.id}")
            return _native(env, num_envs)
        if env.vectorization == "native":
            raise EnvironmentBuildError(f"env.vectorization = native: {obstacle}; set it to auto, sync or async")
    build = functools.partial(make_single, env, source_dir=source_dir)
    if env.vectorization == "envpool":
        return _pool(env, build, num_envs=num_envs, sharers=sharers, chosen=chosen, why="as the config says")
    if env.vectorization == "auto" and auto_takes_pool(env, num_envs):
        try:
            why = f"which is installed and knows {env.id}"
            return _pool(env, build, num_envs=num_envs, sharers=sharers, chosen=chosen, why=why)
        except EnvironmentBuildError:  # it is not installed, or has another environment under this id
            pass
    limit = RestartLimit(env.restarts_per_hour, broke)
    try:
        processes, spaces = choose_processes(env, build, num_envs=num_envs, sharers=sharers, chosen=chosen, timer=timer)
        if spaces is not None and processes:
            return ProcessVector(
                env, num_envs=num_envs, processes=processes, source_dir=source_dir, spaces=spaces, limit=limit
            )
        name = str(env.id or env.make)
        remarks = Remarks(name, remark or broke)
        replaceable = functools.partial(ReplaceableEnv, build, name=name, broke=limit, remarks=remarks)
        envs = [functools.partial(replaceable, index=index) for index in range(num_envs)]
        vector: VectorEnv[Any, Any, Any] = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    except EnvironmentBuildError:
        raise
    except Exception as error:
        raise unbuildable(env, error) from error
    return _checked(vector, env)


def _pool(
    env: EnvConfig,
    build: Callable[[], gymnasium.Env[Array, Any]],
    *,
    num_envs: int,
    sharers: int,
    chosen: Callable[[str], None],
    why: str,
) -> EnvpoolVector:
    """Build one of envpool's. Raises EnvironmentBuildError."""
    package(env)  # where it is not installed, no copy is built for nothing
    copy = build()
    copy.close()
    threads = min(max(usable_cores() // sharers, 1), num_envs)
    of_single = cast("tuple[Space, Space]", (copy.observation_space, copy.action_space))
    pool = EnvpoolVector(env, num_envs=num_envs, threads=threads, spaces=of_single)
    chosen(f"environments: envpool, {threads} thread{'' if threads == 1 else 's'}, {why}")
    return pool


def vectorization(vector: Vector) -> Vectorization:
    """How a vector is stepped, also after `auto`."""
    match vector:
        case SyncVectorEnv():
            return "sync"
        case ProcessVector():
            return "async"
        case EnvpoolVector():
            return "envpool"
        case _:
            return "native"


def clips_rewards(vector: Vector) -> bool:
    """Whether the vector returns raw scores that learners see clipped to [-1, 1]."""
    return isinstance(vector, AtariVector) and vector.clips_rewards


def single_spaces(vector: Vector) -> tuple[Space, Space]:
    """Return the observation and the action space of one environment of the vector."""
    untyped: Any = vector  # gymnasium leaves the spaces' element type open
    return cast(Space, untyped.single_observation_space), cast(Space, untyped.single_action_space)


def tell_legal_actions(vector: Vector) -> None:
    """Have the vector put action masks into `info` from now on. Those in processes do not unless they are asked."""
    if isinstance(vector, ProcessVector):
        vector.tell_legal_actions()


def reset_vector(vector: Vector, seeds: list[int] | None) -> Array:
    """Reset every environment and return the observations [num_envs, …]; see reset_with_info."""
    observations, _ = reset_with_info(vector, seeds)
    return observations


def reset_with_info(vector: Vector, seeds: list[int] | None) -> tuple[Array, dict[str, Any]]:
    """Reset every environment and return the observations [num_envs, …], and what else the environments say.

    `seeds` has one seed per environment. A native vector (except Atari's) and one of envpool are seeded as a whole, and
    get the first seed. None continues the present random streams.
    """
    if seeds is None:
        return vector.reset()
    if vectorization(vector) in ("native", "envpool") and not isinstance(vector, AtariVector):
        return vector.reset(seed=seeds[0])
    return vector.reset(seed=cast(int, seeds))  # these take a list, unlike gymnasium's base class


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
