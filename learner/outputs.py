"""What a learner leaves behind: its log, its checkpoints, and the newest policy as a model file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remuda.config.schema import ExperimentConfig
from remuda.learner import checkpoint
from remuda.learner.checkpoint import Progress
from remuda.logbook.book import Logbook
from remuda.logbook.reports import LearnReport
from remuda.policy import model_artifact
from remuda.policy.base import Algorithm
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord


@dataclass(frozen=True)
class LearnerOutputs:
    """Writes for one learner into one run folder."""

    run: RunFolder
    config: ExperimentConfig
    logbook: Logbook

    def begin(self, algorithm: Algorithm) -> None:
        """Log the network that is going to be trained."""
        self.logbook.say("learner", f"[RANK0]: {algorithm.network!r}")

    def save(self, algorithm: Algorithm, progress: Progress) -> CheckpointRecord:
        """Save ckpt/iteration_<train_iter>.pth.tar and refresh model/; returns what index.json shall say. OSError."""
        train_iter = progress.counters.train_iter
        path = self.run.checkpoint(train_iter)
        record = checkpoint.save(path, algorithm, progress, config=self.config)
        model_artifact.export(
            self.run.model,
            algorithm,
            algorithm_name=self.config.policy.type,
            env=self.config.env.id or str(self.config.env.make),
            train_iter=train_iter,
        )
        self.logbook.say("learner", f"learner saved checkpoint {path}")
        return record

    def report(self, metrics: Mapping[str, float], *, train_iter: int, env_step: int) -> None:
        """Show what the algorithm monitors, averaged since the last report."""
        self.logbook.emit(LearnReport(train_iter=train_iter, env_step=env_step, variables=metrics))
