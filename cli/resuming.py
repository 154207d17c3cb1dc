"""What a verb says before it resumes a run: which settings are others than those of the life before."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.cli.options import ResolvedRun


def tell_changes(resolved: ResolvedRun) -> None:
    """On standard error, where there are any. The run folder's log says the same."""
    from remuda.config.changes import changed_settings, told

    changed = changed_settings(resolved.run_dir, resolved.loaded.config) if resolved.on_exists == "resume" else []
    if changed:
        print(told(changed), file=sys.stderr)
