"""What every part of a config is: frozen, and strict about its keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen part of the config that refuses keys it does not know. The docstring under each setting explains it; see
    remuda.config.descriptions.

    What checks a section alone is built when it is first used: mostly it is checked as a part of the whole config, and
    every process of Remuda would build both while it starts."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)
