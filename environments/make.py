"""Builds a single environment of a config, and checks environments before a start; vectors.py builds vectors."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, TypeAlias, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec, registry
from gymnasium.wrappers import HumanRendering

from remuda.config.current import evaluated, kwargs_of_stage, on_task
from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.config.user_code import UserCodeError, user_object, why_not_imported
from remuda.environments.atari import NAMESPACE, AtariGame, AtariSettings, atari_settings, is_atari, register_atari
from remuda.environments.dm_env import DmEnv, is_dm_env
from remuda.environments.errors import EnvironmentBuildError, UnsupportedSpaceError, ending_hangs, unbuildable
from remuda.environments.lanes import Group, ParallelEnv
from remuda.environments.spaces import (
    Array,
    PackObservations,
    Space,
    column_layout,
    is_structured,
    packs,
    space_structure,
)
from remuda.environments.turns import TurnEnv, Turns, takes_turns
from remuda.environments.wrappers import MasksToInfos, MaskToInfo, PackActions, has_parts, observes_mask

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
    with ending_hangs(env):
        if env.id is None:
            return _from_function(env, source_dir, render_mode)
        settings = settings_of_atari(env)  # as in training, so that single games give the same observations
        return _from_id(env, render_mode) if settings is None else _atari_game(env, settings, render_mode)


def settings_of_atari(env: EnvConfig) -> AtariSettings | None:
    """Return the settings of a game that ale-py's vector environment steps in training; None for all else. Raises
    EnvironmentBuildError."""
    if env.id is None or env.kind != "gymnasium" or env.vectorization not in ("auto", "native"):
        return None
    if not is_atari(known_spec(env)) or obstacle_to_native(env) is not None:
        return None
    return atari_settings(env, known_spec(env))


def shown(env: SingleEnv) -> str:
    """Return the name of an environment for people: its id, or its class."""
    return type(env.unwrapped).__name__ if env.spec is None else env.spec.id


def check_spaces(observation: Space, action: Space) -> None:
    """Raise EnvironmentBuildError unless observations and actions are one array per step."""
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
            built = DmEnv(built) if is_dm_env(built) else built
    except Exception as error:  # anything that the user's function raises
        raise unbuildable(env, error) from error
    if not isinstance(built, gymnasium.Env):
        raise EnvironmentBuildError(
            f"env.make = {env.make!r} returned {built!r}, which is not a gymnasium.Env or dm_env.Environment"
        )
    single = cast(SingleEnv, built)
    if env.max_episode_steps is not None:
        single = gymnasium.wrappers.TimeLimit(single, env.max_episode_steps)
    return single


def user_function(make: str, source_dir: str | None) -> Callable[..., object]:
    """Return the function named by `env.make`; its module is looked up in `source_dir` first. Raises
    EnvironmentBuildError."""
    try:
        found = user_object(make, setting="env.make", source_dir=source_dir, kind="function")
    except UserCodeError as error:
        raise EnvironmentBuildError(str(error)) from error
    return cast("Callable[..., object]", found)


def _atari_game(env: EnvConfig, settings: AtariSettings, render_mode: str | None) -> SingleEnv:
    try:
        game = AtariGame(settings, render_mode=None if render_mode is None else "rgb_array")
        return HumanRendering(game) if render_mode == "human" else game
    except Exception as error:  # anything that the emulator raises because of its settings
        raise unbuildable(env, error) from error


def known_spec(env: EnvConfig) -> EnvSpec:
    """Look up `env.id`, also of Atari games. For `module:Name-v0` the module is imported first, as by gymnasium.make.
    Raises EnvironmentBuildError for an unregistered id."""
    assert env.id is not None, "EnvConfig holds exactly one of id and make"
    if env.id.startswith(NAMESPACE):
        register_atari(env.id)
    module, _, name = env.id.rpartition(":")
    try:
        if module:
            _imported(module, env.id)
        _register_namespace(name.rpartition("/")[0])
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        near = get_close_matches(name, registry, n=1)
        hint = f"did you mean {near[0]}?" if near else "install the package that registers it (or write module:Name-v0)"
        raise EnvironmentBuildError(f"env.id = {env.id!r} is not a known environment: {hint} ({error})") from error


def _imported(module: str, env_id: str) -> ModuleType:
    """Import a module named by `env.id`. Raises ImportError, and EnvironmentBuildError for all other errors."""
    try:
        with NoExit():
            return importlib.import_module(module)
    except ImportError:
        raise
    except Exception as error:  # anything that the module raises while it is imported
        raise EnvironmentBuildError(f"env.id = {env_id!r}: {why_not_imported(module, error)}") from error


def _register_namespace(namespace: str) -> None:
    """Let the package of a namespace, such as MinAtar, register its environments. Packages name a function for this in
    their metadata, which gymnasium 1 no longer reads."""
    if any(id.startswith(f"{namespace}/") for id in registry):
        return
    for entry in entry_points(group="gymnasium.envs", name=namespace):
        with NoExit():
            entry.load()()


def obstacle_to_native(env: EnvConfig) -> str | None:
    """Return the reason against the environment's own vectorised class for this config; None if the
    class can be used."""
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
    """Return the keyword arguments that the function does not accept."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return sorted(names - parameters.keys())


def _creator(entry_point: str | Callable[..., object]) -> Callable[..., object]:
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    return cast("Callable[..., object]", getattr(importlib.import_module(module), name))


ENTRY_POINTS = ("parallel_env", "env")
"""Functions of a PettingZoo module that build the environment: all agents at the same time, or in turns."""
MOST_AGENTS = 10_000
_MEMBERS = ("possible_agents", "reset", "step", "observation_space", "action_space", "close")


def make_parallel(env: EnvConfig, *, source_dir: str | None, render_mode: str | None = None) -> ParallelEnv:
    """Build one environment with several agents. The module of `env.make` is looked up in `source_dir` first.

    Raises EnvironmentBuildError if the environment cannot be built, has no fixed list of agents, or has an unsupported
    space.
    """
    function = _pettingzoo(env.id) if env.id is not None else user_function(env.make or "", source_dir)
    kwargs: dict[str, Any] = dict(env.kwargs) | ({} if render_mode is None else {"render_mode": render_mode})
    try:
        with NoExit(), ending_hangs(env):
            built = function(**kwargs)
        built = Turns(cast("TurnEnv", built)) if takes_turns(built) else built
    except Exception as error:  # anything that a function of somebody else raises
        raise unbuildable(env, error) from error
    named = f"env.id = {env.id!r}" if env.id is not None else f"env.make = {env.make!r}"
    missing = [name for name in _MEMBERS if not hasattr(built, name)]
    if missing:
        raise EnvironmentBuildError(
            f"{named} returned {built!r}, which is not a pettingzoo.ParallelEnv: it has no {', '.join(missing)}"
        )
    game = cast("ParallelEnv", built)
    agents = tuple(game.possible_agents)
    if not 0 < len(agents) <= MOST_AGENTS or len(set(agents)) < len(agents):
        raise EnvironmentBuildError(f"{named}: possible_agents should name 1 to {MOST_AGENTS} agents, each once")
    try:
        if any(observes_mask(game.observation_space(agent), game.action_space(agent)) for agent in agents):
            game = cast("ParallelEnv", MasksToInfos(game))
    except UnsupportedSpaceError as error:
        raise EnvironmentBuildError(str(error)) from error
    for agent in agents:
        _check_spaces(game, agent)
    return game


def _check_spaces(env: ParallelEnv, agent: str) -> None:
    observation, action = env.observation_space(agent), env.action_space(agent)
    if has_parts(action):
        raise EnvironmentBuildError(
            f"the action space of agent {agent} has several parts ({action}), which is not available for environments "
            "with several agents: return the environment in a wrapper that makes it one array"
        )
    if is_structured(observation):
        raise EnvironmentBuildError(
            f"the observation space of agent {agent} has several parts ({observation}), which is not available for "
            "environments with several agents: return the environment in a wrapper that makes it one array"
        )
    check_spaces(observation, action)


def _pettingzoo(name: str) -> Callable[..., object]:
    try:
        module = _imported(name, name)
    except ImportError as error:
        raise EnvironmentBuildError(f"env.id = {name!r} cannot be imported ({error}): {_advice(name)}") from error
    function = next((getattr(module, each) for each in ENTRY_POINTS if hasattr(module, each)), None)
    if function is None:
        raise EnvironmentBuildError(
            f"env.id = {name!r}: this module has no {' or '.join(ENTRY_POINTS)}; name one that has, such as "
            "pettingzoo.butterfly.cooperative_pong_v6, or give your own function as env.make"
        )
    return cast("Callable[..., object]", function)


def _advice(name: str) -> str:
    """Return advice for a module that cannot be imported: a similar name, or a package to install."""
    parent, _, last = name.rpartition(".")
    package = name.partition(".")[0]
    try:
        with NoExit():
            beside = [module.name for module in pkgutil.iter_modules(importlib.import_module(parent).__path__)]
    except (ImportError, ValueError, AttributeError):  # ValueError: there is no dot in the name
        beside = []
    near = get_close_matches(last, beside, n=1)
    if near and last not in beside:
        return f"did you mean {parent}.{near[0]}?"
    if package == "pettingzoo":
        return "pip install 'remuda[pettingzoo]' and what the environment itself needs"
    return f"install the package {package}"


def check_environment(config: ExperimentConfig) -> tuple[Space, Space]:
    """Build one environment and close it; return its observation and action space. With several agents, return the
    spaces common to all of `env.agents`. Raises EnvironmentBuildError."""
    if config.env.kind == "pettingzoo":
        return _check_agents(config)
    env = make_single(config.env, source_dir=config.source_dir)
    try:
        return env.observation_space, env.action_space
    finally:
        with NoExit():
            env.close()


def check_tasks(config: ExperimentConfig, spaces: tuple[Space, Space]) -> None:
    """Build and close the environments of all later tasks and of evaluations; each must fit a policy of these spaces.
    Raises EnvironmentBuildError."""
    for stage in range(len(config.env.schedule) + 1):
        at = on_task(config, kwargs_of_stage(config, stage))
        if stage:
            require_same(f"env.schedule[{stage - 1}]", spaces, check_environment(at))
        check_evaluated(at, spaces)


def check_evaluated(config: ExperimentConfig, spaces: tuple[Space, Space]) -> None:
    """Build and close a separate environment of evaluations, which must fit a policy of these spaces. Raises
    EnvironmentBuildError."""
    if config.evaluator.env is not None:
        require_same("evaluator.env", spaces, check_environment(evaluated(config)))


def require_same(setting: str, policy: tuple[Space, Space], other: tuple[Space, Space]) -> None:
    """Raise EnvironmentBuildError unless a policy with the spaces `policy` (observation, action) can act in the
    environment of `setting`, with the spaces `other`. Bounds of observations may differ."""
    for what, own, there in zip(("observation", "action"), policy, other, strict=True):
        if _form(what, own) != _form(what, there):
            raise EnvironmentBuildError(
                f"{setting}: its {what} space is {there}, and the policy acts in an environment with {own}: these have "
                "to be the same in all tasks and in evaluations"
            )


def _form(what: str, space: Space) -> object:
    described = space_structure(space)
    bounds = ("low", "high") if what == "observation" else ()
    parts = [replace(part, low=None, high=None) for part in space.parts] if packs(space) else []
    return {key: value for key, value in described.items() if key not in bounds}, parts


def _check_agents(config: ExperimentConfig) -> tuple[Space, Space]:
    env = make_parallel(config.env, source_dir=config.source_dir)
    try:
        group = Group.of(env, config.env.agents)
        return group.observation, group.action
    finally:
        with NoExit():
            env.close()
