"""What can be wrong with the environment a config asks for."""

from __future__ import annotations

from remuda.config.schema import EnvConfig


class EnvironmentBuildError(ValueError):
    """The environment of a config cannot be built; the message says what to change."""


def unbuildable(env: EnvConfig, error: Exception) -> EnvironmentBuildError:
    """Say what was asked for, and what whoever builds it raised."""
    asked = f"env.id = {env.id!r}" if env.id is not None else f"env.make = {env.make!r}"
    return EnvironmentBuildError(
        f"{asked} with env.kwargs = {env.kwargs} cannot be built: {type(error).__name__}: {error}"
    )
