"""Builds the environment a config asks for: one alone, or a vector of them."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec, registry
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import HumanRendering

from remuda.config.schema import EnvConfig
from remuda.environments.atari import NAMESPACE, AtariGame, AtariVector, atari_settings, is_atari, register_atari
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.processes import ProcessVector
from remuda.environments.spaces import Array, Space, UnsupportedSpaceError, column_layout
from remuda.environments.user_module import user_function
from remuda.environments.vectorizing import choose_processes

__all__ = [
    "EnvironmentBuildError",
    "SingleEnv",
    "Vector",
    "make_single",
    "make_vector",
    "reset_vector",
    "shown",
    "vectorization",
]

SingleEnv: TypeAlias = gymnasium.Env[Array, Any]
Vector: TypeAlias = VectorEnv[Array, Array, Array]
Vectorization = Literal["native", "sync", "async"]


def make_single(env: EnvConfig, *, source_dir: str | None, render_mode: str | None = None) -> SingleEnv:
    """Build one environment. `source_dir` is where the module of `env.make` is looked up.

    Raises EnvironmentBuildError where the id, the module or its function, or the spaces cannot be used.
    """
    built: SingleEnv
    if env.id is None:
        built = _from_function(env, source_dir, render_mode)
    elif _plays_atari(env):
        built = _atari_game(env, render_mode)
    else:
        built = _from_id(env, render_mode)
    _check_spaces(built.observation_space, built.action_space)
    return built


def make_vector(
    env: EnvConfig,
    *,
    num_envs: int,
    source_dir: str | None,
    sharers: int = 1,
    chosen: Callable[[str], None] = lambda why: None,
) -> Vector:
    """Build `num_envs` environments that step together, the way `env.vectorization` says.

    A finished environment is reset by the step after (gymnasium's AutoresetMode.NEXT_STEP), whichever way it is
    built: only so the last observation of an episode is seen, which a truncated episode bootstraps from. Objects and
    processes give the same numbers.

    `auto` counts on `sharers` workers like this one sharing the cores. `chosen` hears in one line what was chosen and
    why. Raises EnvironmentBuildError as make_single, and where a native vector is asked for that does not exist, does
    not take the settings, or resets in another way.
    """
    if env.vectorization in ("native", "auto"):
        obstacle = _obstacle_to_native(env)
        if obstacle is None:
            chosen(f"environments: native, the vectorised class of {env.id}")
            return _native(env, num_envs)
        if env.vectorization == "native":
            raise EnvironmentBuildError(f"env.vectorization = native: {obstacle}; set it to auto, sync or async")
    build = functools.partial(make_single, env, source_dir=source_dir)
    try:
        processes, spaces = choose_processes(env, build, num_envs=num_envs, sharers=sharers, chosen=chosen)
        if spaces is not None and processes:
            return ProcessVector(env, num_envs=num_envs, processes=processes, source_dir=source_dir, spaces=spaces)
        vector: VectorEnv[Any, Any, Any] = SyncVectorEnv([build] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    except EnvironmentBuildError:
        raise
    except Exception as error:
        raise _unbuildable(env, error) from error
    return _checked(vector, env)


def shown(env: SingleEnv) -> str:
    """Name an environment for people: its id, or its class."""
    return type(env.unwrapped).__name__ if env.spec is None else env.spec.id


def vectorization(vector: Vector) -> Vectorization:
    """Say how a vector is stepped: what `auto` turned out to be."""
    match vector:
        case SyncVectorEnv():
            return "sync"
        case ProcessVector():
            return "async"
        case _:
            return "native"


def clips_rewards(vector: Vector) -> bool:
    """Whether the vector pays raw scores and learners shall see them clipped to [-1, 1]."""
    return isinstance(vector, AtariVector) and vector.clips_rewards


def single_spaces(vector: Vector) -> tuple[Space, Space]:
    """Return the observation and the action space of one environment of the vector."""
    untyped: Any = vector  # gymnasium leaves the spaces' element type open
    return cast(Space, untyped.single_observation_space), cast(Space, untyped.single_action_space)


def reset_vector(vector: Vector, seeds: list[int] | None) -> Array:
    """Reset every environment and return the observations [num_envs, …].

    `seeds` has one seed per environment. A native vector (but for Atari's) has one random stream for all its
    environments and is given the first. None goes on with the random streams as they are.
    """
    if seeds is None:
        observations, _ = vector.reset()
    elif vectorization(vector) == "native" and not isinstance(vector, AtariVector):
        observations, _ = vector.reset(seed=seeds[0])
    else:
        observations, _ = vector.reset(seed=cast(int, seeds))  # gymnasium's base class forgets that these take a list
    return observations


def _from_id(env: EnvConfig, render_mode: str | None) -> SingleEnv:
    spec = _known_spec(env)
    kwargs: dict[str, Any] = dict(env.kwargs)
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    try:
        built: SingleEnv = gymnasium.make(spec, max_episode_steps=env.max_episode_steps, **kwargs)
    except Exception as error:  # whatever the environment's constructor raises
        raise _unbuildable(env, error) from error
    return built


def _from_function(env: EnvConfig, source_dir: str | None, render_mode: str | None) -> SingleEnv:
    assert env.make is not None, "EnvConfig holds exactly one of id and make"
    function = user_function(env.make, source_dir=source_dir)
    kwargs: dict[str, Any] = dict(env.kwargs)
    if render_mode is not None:
        if missing := _not_taken(function, {"render_mode"}):
            raise EnvironmentBuildError(
                f"env.make = {env.make!r} has no parameter {missing[0]}, so it cannot be shown: let the function take "
                "render_mode and pass it to the environment, or evaluate without rendering"
            )
        kwargs["render_mode"] = render_mode
    try:
        built = function(**kwargs)
    except Exception as error:  # whatever the user's function raises
        raise _unbuildable(env, error) from error
    if not isinstance(built, gymnasium.Env):
        raise EnvironmentBuildError(f"env.make = {env.make!r} returned {built!r}, which is not a gymnasium.Env")
    single = cast(SingleEnv, built)
    if env.max_episode_steps is not None:
        single = gymnasium.wrappers.TimeLimit(single, env.max_episode_steps)
    return single


def _plays_atari(env: EnvConfig) -> bool:
    """Whether ale-py's own vector environment plays it: then single games are cut from the same cloth."""
    return env.vectorization in ("auto", "native") and is_atari(_known_spec(env)) and _obstacle_to_native(env) is None


def _atari_game(env: EnvConfig, render_mode: str | None) -> SingleEnv:
    settings = atari_settings(env, _known_spec(env))
    try:
        game = AtariGame(settings, render_mode=None if render_mode is None else "rgb_array")
        return HumanRendering(game) if render_mode == "human" else game
    except Exception as error:  # whatever the emulator makes of its settings
        raise _unbuildable(env, error) from error


def _native(env: EnvConfig, num_envs: int) -> Vector:
    spec = _known_spec(env)
    if is_atari(spec):
        settings = atari_settings(env, spec)
        try:
            return _checked(AtariVector(settings, num_envs), env)
        except EnvironmentBuildError:
            raise
        except Exception as error:  # whatever the emulator makes of its settings
            raise _unbuildable(env, error) from error
    kwargs: dict[str, Any] = dict(env.kwargs)
    if env.max_episode_steps is not None:
        kwargs["max_episode_steps"] = env.max_episode_steps
    try:
        vector = gymnasium.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    except Exception as error:  # whatever the environment's constructor raises
        raise _unbuildable(env, error) from error
    return _checked(vector, env)


def _obstacle_to_native(env: EnvConfig) -> str | None:
    """Say why the environment's own vectorised class cannot serve this config; None if it can."""
    if env.id is None:
        return "env.make returns single environments"
    spec = _known_spec(env)
    if spec.vector_entry_point is None:
        return f"{env.id} has no vectorised class of its own"
    if spec.additional_wrappers:
        return f"{env.id} is registered with wrappers, which a vectorised class cannot have"
    wanted = {*spec.kwargs, *env.kwargs}
    if not is_atari(spec) and (env.max_episode_steps is not None or spec.max_episode_steps is not None):
        wanted.add("max_episode_steps")
    try:
        missing = _not_taken(_creator(spec.vector_entry_point), wanted)
    except (ImportError, AttributeError) as error:
        return f"the vectorised class of {env.id} cannot be imported ({error})"
    return f"the vectorised class of {env.id} does not take {', '.join(missing)}" if missing else None


def _creator(entry_point: str | Callable[..., object]) -> Callable[..., object]:
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    return cast("Callable[..., object]", getattr(importlib.import_module(module), name))


def _not_taken(function: Callable[..., object], names: set[str]) -> list[str]:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return sorted(names - parameters.keys())


def _known_spec(env: EnvConfig) -> EnvSpec:
    assert env.id is not None, "EnvConfig holds exactly one of id and make"
    if env.id.startswith(NAMESPACE):
        register_atari(env.id)
    try:
        return gymnasium.spec(env.id)
    except (gymnasium.error.Error, ImportError) as error:
        near = get_close_matches(env.id, registry, n=1)
        hint = f"did you mean {near[0]}?" if near else "install the package that registers it (or write module:Name-v0)"
        raise EnvironmentBuildError(f"env.id = {env.id!r} is not a known environment: {hint} ({error})") from error


def _checked(vector: Vector, env: EnvConfig) -> Vector:
    mode = vector.metadata.get("autoreset_mode")
    try:
        _check_spaces(*single_spaces(vector))
        if mode is not AutoresetMode.NEXT_STEP:
            raise EnvironmentBuildError(
                f"the vectorised class of {env.id} resets in mode {mode}, and Remuda needs NEXT_STEP, which shows the "
                "last observation of an episode: set env.vectorization to sync or async"
            )
    except EnvironmentBuildError:
        vector.close()
        raise
    return vector


def _check_spaces(observation: Space, action: Space) -> None:
    try:
        column_layout(observation, what="observation")
        column_layout(action, what="action")
    except UnsupportedSpaceError as error:
        raise EnvironmentBuildError(str(error)) from error


def _unbuildable(env: EnvConfig, error: Exception) -> EnvironmentBuildError:
    asked = f"env.id = {env.id!r}" if env.id is not None else f"env.make = {env.make!r}"
    return EnvironmentBuildError(
        f"{asked} with env.kwargs = {env.kwargs} cannot be built: {type(error).__name__}: {error}"
    )
