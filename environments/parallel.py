"""Builds environments with several agents: PettingZoo's, or a user's own with the same interface."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, cast

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.errors import EnvironmentBuildError, unbuildable
from remuda.environments.make import check_spaces, user_function
from remuda.environments.mask_in_observation import MasksToInfos, observes_mask
from remuda.environments.packed_actions import has_parts
from remuda.environments.packing import is_structured
from remuda.environments.parallel_env import ParallelEnv
from remuda.environments.unsupported import UnsupportedSpaceError

ENTRY_POINT = "parallel_env"
"""Function of a PettingZoo module that builds the environment."""
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
        with NoExit():
            built = function(**kwargs)
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
            game = MasksToInfos(game)
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
        with NoExit():
            module = importlib.import_module(name)
    except ImportError as error:
        raise EnvironmentBuildError(f"env.id = {name!r} cannot be imported ({error}): {_advice(name)}") from error
    function = getattr(module, ENTRY_POINT, None)
    if function is None:
        raise EnvironmentBuildError(
            f"env.id = {name!r}: this module has no {ENTRY_POINT}; name one that has, such as "
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
