"""Errors of building the environment of a config."""

from __future__ import annotations

import re

from remuda.config.environment import EnvConfig
from remuda.config.errors import Error
from remuda.config.plain import masked

_EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "classic-control": "video", "atari": "atari"}
"""Extras of gymnasium in messages about missing packages, and Remuda's extras with the same packages."""
_NAMED_EXTRA = re.compile(r"gymnasium\[([a-z0-9-]+)\]")


class EnvironmentBuildError(Error, ValueError):
    """The environment of a config cannot be built; the message says what to change."""


def unbuildable(env: EnvConfig, error: Exception) -> EnvironmentBuildError:
    """Return the error for an environment whose constructor or function raised `error`."""
    from gymnasium.error import DependencyNotInstalled  # a coordinator does without gymnasium

    asked = f"env.id = {env.id!r}" if env.id is not None else f"env.make = {env.make!r}"
    if isinstance(error, DependencyNotInstalled):
        extra = next((_EXTRAS[name] for name in _NAMED_EXTRA.findall(str(error)) if name in _EXTRAS), None)
        if extra is not None:
            return EnvironmentBuildError(f"{asked} needs packages that are missing: pip install 'remuda[{extra}]'")
    return EnvironmentBuildError(
        f"{asked} with env.kwargs = {masked(env.kwargs)} cannot be built: {type(error).__name__}: {error}"
    )


class UnsupportedSpaceError(Error, ValueError):
    """An environment's observations or actions cannot be stored, or no algorithm supports them. The message names the
    space and the supported spaces."""
