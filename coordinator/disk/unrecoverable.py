"""A previous coordinator's run that cannot be recovered: what its folder shows of it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from remuda.coordinator.catalog import FinishedRun
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import json_of, read_bounded
from remuda.training.identity import Identity
from remuda.training.next_command import resume_command
from remuda.training.status import failed_status

_MOST_CONFIG_BYTES = 16 << 20


def unrecoverable_run(experiment: str, run_dir: Path, error: Exception) -> FinishedRun:
    """The run that cannot be recovered because of `error`: shown as failed, as far as its last checkpoint."""
    folder = RunFolder(run_dir)
    try:
        checkpoints = CheckpointIndex(folder.ckpt)
        last, best = checkpoints.last, checkpoints.best
    except (CheckpointIndexError, OSError):
        last = best = None
    way_out = "" if last is None else f"; to go on from {last.file}, type: {resume_command('submit', run_dir)}"
    identity = Identity(experiment, _name(folder), str(run_dir), policy_file="", priority=0, submitted=0)
    reason = f"{run_dir} cannot be taken up: {error}{way_out}"
    return FinishedRun(identity, failed_status(identity, reason, last, best), unrecoverable=True)


def _name(folder: RunFolder) -> str:
    try:
        content = json_of(read_bounded(folder.config_json, most_bytes=_MOST_CONFIG_BYTES))
    except (OSError, ValueError):
        content = None
    name = cast("dict[str, object]", content).get("name") if isinstance(content, dict) else None
    return name if isinstance(name, str) else folder.root.name
