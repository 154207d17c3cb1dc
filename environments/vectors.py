"""Builds the vector of environments of a config, and hides the differences between the ways of stepping it."""

from __future__ import annotations

import functools
import os
import statistics
import time
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
from remuda.environments.legal_actions import sample_legal
from remuda.environments.make import check_spaces, known_spec, make_single, obstacle_to_native
from remuda.environments.probe import Remarks
from remuda.environments.processes import ProcessVector
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.spaces import Array, Space

Vector: TypeAlias = VectorEnv[Array, Array, Array]
Vectorization = Literal["native", "sync", "async", "envpool"]


ROUND_TRIP_S = 200e-6
"""Assumed cost of sending a step to processes and waiting for them (measured: 100 us)."""
WORTH_IT = 1.3
"""Expected speedup above which processes are used: a smaller one is within the noise, and objects need less memory."""

_STEPS = 20
_LONGEST_S = 1.0

StepTimer: TypeAlias = Callable[[gymnasium.Env[Array, Any]], float]
"""Steps an environment a few times and returns how long a step takes, in seconds."""


def time_step(env: gymnasium.Env[Array, Any], *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median duration of a few random steps by legal actions, in seconds; resets are not timed.

    Makes fewer steps if they take more than a second in total. Raises what the environment raises.
    """
    env.action_space.seed(0)
    _, info = env.reset(seed=0)
    durations_s: list[float] = []
    while len(durations_s) < _STEPS and sum(durations_s) < _LONGEST_S:
        action = sample_legal(env.action_space, info)
        start_s = clock()
        _, _, terminated, truncated, info = env.step(action)
        durations_s.append(clock() - start_s)
        if terminated or truncated:
            _, info = env.reset()
    return statistics.median(durations_s)


def choose_processes(
    env: EnvConfig,
    build: Callable[[], gymnasium.Env[Array, Any]],
    *,
    num_envs: int,
    sharers: int,
    chosen: Callable[[str], None],
    timer: StepTimer = time_step,
) -> tuple[int, tuple[Space, Space] | None]:
    """Choose the number of processes for the environments, 0 for none, and return the spaces that processes need.

    If there is a choice, a copy is built, timed with `timer` and closed. Raises what building raises.
    """
    cores = usable_cores()
    fair_share = max(cores // sharers, 1)
    if env.vectorization == "sync" or (env.vectorization == "auto" and min(fair_share, num_envs) < 2):
        chosen("environments: sync, objects in one process")
        return 0, None
    copy = build()
    try:
        spaces = cast("tuple[Space, Space]", (copy.observation_space, copy.action_space))
        if env.vectorization == "async":
            processes, why = min(cores, num_envs), "as the config says"
        else:
            processes, why = _timed(copy, timer, num_envs, fair_share)
    finally:
        copy.close()
    how = f"async, {processes} processes" if processes else "sync, objects in one process"
    chosen(f"environments: {how}, {why}")
    return processes, spaces


def _timed(copy: gymnasium.Env[Array, Any], timer: StepTimer, num_envs: int, cores: int) -> tuple[int, str]:
    """How many processes, and why."""
    try:
        with NoExit():
            step_s = timer(copy)
    except Exception as error:  # an environment that always fails will do so again where failures are counted
        return 0, f"since a copy could not be timed: {type(error).__name__}: {error}"
    processes = processes_for(step_s, num_envs=num_envs, cores=cores)
    return processes, f"since a step takes {step_s * 1e6:.0f} us and {num_envs} may share {cores} cores"


def processes_for(step_s: float, *, num_envs: int, cores: int) -> int:
    """Return how many processes should step `num_envs` environments whose step takes `step_s`; 0 is none at all.

    Objects in one process take num_envs steps in turn; processes divide them evenly and cost a round trip.
    """
    processes = min(cores, num_envs)
    if processes < 2:
        return 0
    in_turn_s = num_envs * step_s
    shared_out_s = -(-num_envs // processes) * step_s + ROUND_TRIP_S
    return processes if in_turn_s >= WORTH_IT * shared_out_s else 0


def usable_cores() -> int:
    """Cores that the operating system lets this process use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
