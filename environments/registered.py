"""The registration of an id with gymnasium, and whether its own vectorised class can be used for a config."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import cast

import gymnasium
from gymnasium.envs.registration import EnvSpec, registry

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.atari import NAMESPACE, is_atari, register_atari
from remuda.environments.errors import EnvironmentBuildError


def known_spec(env: EnvConfig) -> EnvSpec:
    """Look up `env.id`, also of Atari games; of `module:Name-v0` the module is imported first, as gymnasium.make does.
    Raises EnvironmentBuildError if it is not registered."""
    assert env.id is not None, "EnvConfig holds exactly one of id and make"
    if env.id.startswith(NAMESPACE):
        register_atari(env.id)
    module, _, name = env.id.rpartition(":")
    try:
        if module:
            with NoExit():
                importlib.import_module(module)
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        near = get_close_matches(name, registry, n=1)
        hint = f"did you mean {near[0]}?" if near else "install the package that registers it (or write module:Name-v0)"
        raise EnvironmentBuildError(f"env.id = {env.id!r} is not a known environment: {hint} ({error})") from error


def obstacle_to_native(env: EnvConfig) -> str | None:
    """Why the environment's own vectorised class cannot be used for this config; None if it can."""
    if env.id is None:
        return "env.make returns single environments"
    spec = known_spec(env)
    if spec.vector_entry_point is None:
        return f"{env.id} has no vectorised class of its own"
    if spec.additional_wrappers:
        return f"{env.id} is registered with wrappers, which a vectorised class cannot have"
    wanted = {*spec.kwargs, *env.kwargs}
    if not is_atari(spec) and (env.max_episode_steps is not None or spec.max_episode_steps is not None):
        wanted.add("max_episode_steps")
    try:
        missing = not_taken(_creator(spec.vector_entry_point), wanted)
    except (ImportError, AttributeError) as error:
        return f"the vectorised class of {env.id} cannot be imported ({error})"
    return f"the vectorised class of {env.id} does not take {', '.join(missing)}" if missing else None


def not_taken(function: Callable[..., object], names: set[str]) -> list[str]:
    """Those of these keyword arguments that the function does not accept."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return sorted(names - parameters.keys())


def _creator(entry_point: str | Callable[..., object]) -> Callable[..., object]:
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    return cast("Callable[..., object]", getattr(importlib.import_module(module), name))
