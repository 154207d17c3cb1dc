"""Builds a single environment of a config. For a vector of them see vectors.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import gymnasium
from gymnasium.wrappers import HumanRendering

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.config.user_code import UserCodeError, user_object
from remuda.environments.atari import AtariGame, atari_settings, is_atari
from remuda.environments.errors import EnvironmentBuildError, unbuildable
from remuda.environments.mask_in_observation import MaskToInfo, observes_mask
from remuda.environments.packed_actions import PackActions, has_parts
from remuda.environments.packing import PackObservations, is_structured
from remuda.environments.registered import known_spec, not_taken, obstacle_to_native
from remuda.environments.spaces import Array, Space, column_layout
from remuda.environments.unsupported import UnsupportedSpaceError

SingleEnv: TypeAlias = gymnasium.Env[Array, Any]


def make_single(env: EnvConfig, *, source_dir: str | None, render_mode: str | None = None) -> SingleEnv:
    """Build one environment. The module of `env.make` is looked up in `source_dir` first.

    Raises EnvironmentBuildError if the id, the module or its function, or the spaces cannot be used.
    """
    built = make_plain(env, source_dir=source_dir, render_mode=render_mode)
    try:
        if observes_mask(built.observation_space, built.action_space):
            built = MaskToInfo(built)
        if has_parts(built.action_space):
            built = PackActions(built)
        if is_structured(built.observation_space):
            built = PackObservations(built)
    except UnsupportedSpaceError as error:
        raise EnvironmentBuildError(str(error)) from error
    check_spaces(built.observation_space, built.action_space)
    return built


def make_plain(env: EnvConfig, *, source_dir: str | None, render_mode: str | None = None) -> SingleEnv:
    """Build one environment with the spaces of its author: parts of observations and actions are not packed. Raises
    EnvironmentBuildError if the id, the module or its function cannot be used."""
    if env.id is None:
        return _from_function(env, source_dir, render_mode)
    return _atari_game(env, render_mode) if _plays_atari(env) else _from_id(env, render_mode)


def shown(env: SingleEnv) -> str:
    """The name of an environment for people: its id, or its class."""
    return type(env.unwrapped).__name__ if env.spec is None else env.spec.id


def check_spaces(observation: Space, action: Space) -> None:
    """Raise EnvironmentBuildError unless each is one array per step."""
    try:
        column_layout(observation, what="observation")
        column_layout(action, what="action")
    except UnsupportedSpaceError as error:
        raise EnvironmentBuildError(str(error)) from error


def _from_id(env: EnvConfig, render_mode: str | None) -> SingleEnv:
    spec = known_spec(env)
    kwargs: dict[str, Any] = dict(env.kwargs)
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    try:
        with NoExit():
            built: SingleEnv = gymnasium.make(spec, max_episode_steps=env.max_episode_steps, **kwargs)
    except Exception as error:  # anything that the environment's constructor raises
        raise unbuildable(env, error) from error
    return built


def _from_function(env: EnvConfig, source_dir: str | None, render_mode: str | None) -> SingleEnv:
    assert env.make is not None, "EnvConfig holds exactly one of id and make"
    function = user_function(env.make, source_dir)
    kwargs: dict[str, Any] = dict(env.kwargs)
    if render_mode is not None:
        if missing := not_taken(function, {"render_mode"}):
            raise EnvironmentBuildError(
                f"env.make = {env.make!r} has no parameter {missing[0]}, so it cannot be shown: add the parameter "
                "render_mode to the function and pass it to the environment, or evaluate without rendering"
            )
        kwargs["render_mode"] = render_mode
    try:
        with NoExit():
            built = function(**kwargs)
    except Exception as error:  # anything that the user's function raises
        raise unbuildable(env, error) from error
    if not isinstance(built, gymnasium.Env):
        raise EnvironmentBuildError(f"env.make = {env.make!r} returned {built!r}, which is not a gymnasium.Env")
    single = cast(SingleEnv, built)
    if env.max_episode_steps is not None:
        single = gymnasium.wrappers.TimeLimit(single, env.max_episode_steps)
    return single


def user_function(make: str, source_dir: str | None) -> Callable[..., object]:
    """The function that `env.make` names; its module is looked up in `source_dir` first. Raises
    EnvironmentBuildError."""
    try:
        found = user_object(make, setting="env.make", source_dir=source_dir, kind="function")
    except UserCodeError as error:
        raise EnvironmentBuildError(str(error)) from error
    return cast("Callable[..., object]", found)


def _plays_atari(env: EnvConfig) -> bool:
    """Whether ale-py's vector environment steps it in training; then single games must give the same observations."""
    return env.vectorization in ("auto", "native") and is_atari(known_spec(env)) and obstacle_to_native(env) is None


def _atari_game(env: EnvConfig, render_mode: str | None) -> SingleEnv:
    settings = atari_settings(env, known_spec(env))
    try:
        game = AtariGame(settings, render_mode=None if render_mode is None else "rgb_array")
        return HumanRendering(game) if render_mode == "human" else game
    except Exception as error:  # anything that the emulator raises because of its settings
        raise unbuildable(env, error) from error
