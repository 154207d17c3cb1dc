"""What can be wrong with the environment a config asks for."""

from __future__ import annotations


class EnvironmentBuildError(ValueError):
    """The environment of a config cannot be built; the message says what to change."""
