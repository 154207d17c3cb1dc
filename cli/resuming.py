"""What a command says before it resumes a run: which settings have changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.cli.options import ResolvedRun


def tell_changes(resolved: ResolvedRun) -> None:
    """Print the changed settings on standard error, if there are any. They are also in the log of the run."""
    from remuda.config.changes import changed_settings, told

    changed = changed_settings(resolved.run_dir, resolved.loaded.config) if resolved.on_exists == "resume" else []
    if changed:
        print(told(changed), file=sys.stderr)
