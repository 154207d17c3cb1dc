"""The settings of `remuda launch`: what starts the processes of a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from remuda.config.numbers import PositiveFloat
from remuda.config.section import Section

LOCAL = "local"
"""The launcher of this machine."""


class LaunchConfig(Section):
    """How `remuda launch` starts the coordinator and the workers. Nothing of it changes what is learned."""

    on: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)] = LOCAL
    """The launcher: `local` (this machine), your own as `module:Class`, looked up in the folder of the config file
    first, or the name of one in an installed package (entry point group `remuda.launchers`). The option --on sets
    this."""
    coordinator_timeout_s: PositiveFloat = 3_600.0
    """Seconds that workers, and `remuda launch` itself, wait for a coordinator that is silent or missing. An engine may
    take long to start it again."""
