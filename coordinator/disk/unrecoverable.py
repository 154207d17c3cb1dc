"""A previous coordinator's run that cannot be recovered: what its folder says of it."""

from __future__ import annotations

import json
from pathlib import Path

from remuda.coordinator.experiment.finished import FinishedRun
from remuda.coordinator.experiment.identity import Identity
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord, ExperimentStatus


def unrecoverable_run(experiment: str, run_dir: Path, error: Exception) -> FinishedRun:
    """The run that `error` keeps from being taken up: shown as failed, as far as its last checkpoint."""
    folder = RunFolder(run_dir)
    try:
        checkpoints = CheckpointIndex(folder.ckpt)
        last, best = checkpoints.last, checkpoints.best
    except (CheckpointIndexError, OSError):
        last = best = None
    way_out = "" if last is None else f"; `remuda submit --resume` goes on from {last.file}"
    identity = Identity(experiment, _name(folder), str(run_dir), policy_file="", priority=0, submitted=0)
    reason = f"{run_dir} cannot be taken up: {error}{way_out}"
    return FinishedRun(identity, _failed(identity, reason, last, best), lost=True)


def _failed(
    identity: Identity, reason: str, last: CheckpointRecord | None, best: CheckpointRecord | None
) -> ExperimentStatus:
    return ExperimentStatus(
        id=identity.id,
        name=identity.name,
        state="failed",
        reason=reason,
        run_dir=identity.run_dir,
        env_step=0 if last is None else last.env_step,
        train_iter=0 if last is None else last.train_iter,
        episode=0 if last is None else last.episode,
        policy_version=0 if last is None else last.policy.version,
        wall_s=0.0 if last is None else last.wall_s,
        last_return=None if last is None else last.reward,
        best_return=None if best is None else best.reward,
        env_steps_per_s=0.0,
        train_iters_per_s=0.0,
        policy_lag=0,
        samples_per_insert=None,
        waiting_for=None,
    )


def _name(folder: RunFolder) -> str:
    try:
        name = json.loads(folder.config_json.read_bytes())["name"]
    except (OSError, ValueError, LookupError, TypeError):
        name = None
    return name if isinstance(name, str) else folder.root.name
