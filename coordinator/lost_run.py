"""A run that a coordinator before this one had in hand and that cannot be taken up: what can still be said of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from remuda.coordinator.identity import Identity
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord, ExperimentStatus


@dataclass(frozen=True)
class LostRun:
    """It is over as far as this coordinator is concerned: shown as failed, its logs can be read."""

    identity: Identity
    reason: str
    last: CheckpointRecord | None
    """Where it can be resumed."""
    best: CheckpointRecord | None
    over = True

    def status(self, now_s: float) -> ExperimentStatus:
        """As `remuda status` shows it: with the counters of its last checkpoint."""
        last = self.last
        return ExperimentStatus(
            id=self.identity.id,
            name=self.identity.name,
            state="failed",
            reason=self.reason,
            run_dir=self.identity.run_dir,
            env_step=0 if last is None else last.env_step,
            train_iter=0 if last is None else last.train_iter,
            episode=0 if last is None else last.episode,
            policy_version=0 if last is None else last.policy.version,
            wall_s=0.0 if last is None else last.wall_s,
            last_return=None if last is None else last.reward,
            best_return=None if self.best is None else self.best.reward,
            env_steps_per_s=0.0,
            train_iters_per_s=0.0,
            policy_lag=0,
            samples_per_insert=None,
            waiting_for=None,
        )


def look_at(experiment: str, run_dir: Path, error: Exception) -> LostRun:
    """What the run folder, or what is left of it, tells of a run that `error` keeps from being taken up."""
    folder = RunFolder(run_dir)
    try:
        checkpoints = CheckpointIndex(folder.ckpt)
        last, best = checkpoints.last, checkpoints.best
    except (CheckpointIndexError, OSError):
        last = best = None
    way_out = "" if last is None else f"; `remuda submit --resume` goes on from {last.file}"
    identity = Identity(experiment, _name(folder), str(run_dir), policy_file="", priority=0, submitted=0)
    return LostRun(identity, f"{run_dir} cannot be taken up: {error}{way_out}", last, best)


def _name(folder: RunFolder) -> str:
    try:
        name = json.loads(folder.config_json.read_bytes())["name"]
    except (OSError, ValueError, LookupError, TypeError):
        name = None
    return name if isinstance(name, str) else folder.root.name
