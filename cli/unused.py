"""What a command says before it starts a run: which settings have no effect."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.cli.options import ResolvedRun


def tell_unused(resolved: ResolvedRun) -> None:
    """Print a line on standard error for each setting that was given and that nothing reads."""
    from remuda.config.unused import unused_settings

    for line in unused_settings(resolved.loaded.config):
        print(f"warning: {line}", file=sys.stderr)
