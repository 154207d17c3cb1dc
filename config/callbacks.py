"""The settings of callbacks: code of the user that is told what happens in a run."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import BeforeValidator, Field

from remuda.config.numbers import Kwargs
from remuda.config.section import Section


class CallbackConfig(Section):
    """A callback of your own."""

    make: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
    """Its class: `module:Class`, derived from remuda.Callback."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Keyword arguments for its constructor."""


def _named(value: object) -> object:
    """`module:Class` alone is a callback without arguments."""
    if not isinstance(value, list | tuple):
        return value
    return [{"make": one} if isinstance(one, str) else one for one in cast("list[object]", value)]


Callbacks = Annotated[tuple[CallbackConfig, ...], Field(max_length=100), BeforeValidator(_named)]
