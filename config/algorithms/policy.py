"""The section `policy` of a config: that of the algorithm which its `type` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union, cast

from pydantic import Discriminator, Tag

from remuda.config.algorithms.base import BuiltInConfig
from remuda.config.algorithms.custom import CustomConfig
from remuda.config.algorithms.registry import BUILT_IN

CUSTOM = "custom"
"""Stands for every other `type`, in messages of validation and in the documentation."""


def _algorithm(value: object) -> str | None:
    """Which of the sections below is meant; an algorithm that is not among them is looked up by its name."""
    kind = cast("dict[str, object]", value).get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return None if not isinstance(kind, str) else kind if kind in BUILT_IN else CUSTOM


if TYPE_CHECKING:
    PolicyConfig = BuiltInConfig | CustomConfig
else:
    _TAGGED = [Annotated[one.settings, Tag(name)] for name, one in BUILT_IN.items()]
    PolicyConfig = Annotated[Union[(*_TAGGED, Annotated[CustomConfig, Tag(CUSTOM)])], Discriminator(_algorithm)]
