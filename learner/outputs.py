"""Outputs of a learner: log, checkpoints, and the newest policy as a model file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from remuda.config.current import Values
from remuda.config.schema import ExperimentConfig
from remuda.learner import checkpoint
from remuda.learner.checkpoint import Progress
from remuda.learner.loop import finite
from remuda.logbook.book import Logbook
from remuda.logbook.reports import HistogramReport, LearnReport
from remuda.logbook.statistics import spread_evenly
from remuda.policy.algorithms import declaration
from remuda.policy.base import Algorithm
from remuda.policy.files.model_artifact import Exporter
from remuda.policy.row_plan import row_plan
from remuda.storage.atomic import Replacing, replacing
from remuda.storage.fence import SupersededError
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointReason, CheckpointRecord, Counters, Histogram

BUCKETS = 32
MOST_PER_LAYER = 1 << 16
"""Largest number of counted weights per layer; of a larger layer every n-th weight is counted, with the same shape at
less cost."""


def weight_histograms(network: torch.nn.Module) -> dict[str, Histogram]:
    """Return histograms by parameter name, such as `torso.0.weight`; parameters without a finite
    number are left out."""
    found: dict[str, Histogram] = {}
    for name, parameter in network.named_parameters():
        # n is odd: an even one would meet the same few columns in every row of a layer of 2^k columns.
        every = -(-parameter.numel() // MOST_PER_LAYER) | 1
        sample = parameter.detach().reshape(-1)[::every].float().cpu().numpy()
        histogram = spread_evenly(sample, BUCKETS)
        if histogram is not None:
            found[name] = histogram
    return found


EXPORTED: Sequence[CheckpointReason] = ("initial", "interval", "final", "preemption")
"""Kinds of checkpoints after which model/ is always written."""
EXPORT_INTERVAL_S = 30.0
EXPORT_SHARE = 0.01
"""Largest share of time for writing model/ after checkpoints for evaluations, which may come many times a second; but
always written after EXPORT_INTERVAL_S seconds."""


def batch_line(config: ExperimentConfig) -> str:
    """Describe the batch of an update, for people."""
    plan = row_plan(config)
    if not plan.on_policy:
        return f"an update learns from {plan.rows_per_update} rows"
    steps = plan.rows_per_update * plan.slots_per_row
    return f"an update learns from {plan.rows_per_update} segments of {plan.slots_per_row} steps: {steps} steps"


@dataclass
class LearnerOutputs:
    """Writes the outputs of a learner into one run folder."""

    run: RunFolder
    config: ExperimentConfig
    logbook: Logbook
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    replace: Replacing = replacing
    """Puts files in place; the learner of a herd uses its fence."""
    _exported_s: float = field(default=-math.inf, init=False)
    _export_s: float = field(default=0.0, init=False)
    """Duration of the newest export, except the first, which traces."""
    _exporter: Exporter | None = field(default=None, init=False)
    _checked: bool = field(default=False, init=False)
    """A checkpoint of this process is known to be loadable; to check all would take too long."""

    def begin(self, algorithm: Algorithm) -> None:
        """Log the network, and the size of a batch."""
        self.logbook.say("learner", f"[RANK0]: {algorithm.network!r}")
        self.logbook.say("learner", batch_line(self.config))

    def loaded(self, path: Path, warnings: Sequence[str]) -> None:
        """Log the checkpoint of the initial weights."""
        self.logbook.say("learner", f"loaded checkpoint {path}")
        for warning in warnings:
            self._warn(warning)

    def never_returned(self, metrics: Sequence[str], *, train_iter: int) -> None:
        """Warn of declared metrics that the algorithm has not returned in the updates so far."""
        if metrics:
            self._warn(
                f"up to update {train_iter} `learn` of the algorithm has never returned {', '.join(metrics)}, and logs "
                "show nan: return each metric that the declaration lists in `monitored`, or remove its name there"
            )

    def _warn(self, text: str) -> None:
        self.logbook.say("learner", text, level="warning")
        if "commander" in self.logbook.logs:  # of a serial run; in parallel mode the coordinator is told
            self.logbook.say("commander", text, level="warning")

    def save(
        self,
        algorithm: Algorithm,
        progress: Progress,
        reason: CheckpointReason,
        *,
        rngs: Mapping[str, np.random.Generator] | None = None,
    ) -> CheckpointRecord:
        """Save ckpt/iteration_<train_iter>.pth.tar, with the states of these generators, and return its record for
        index.json. Raises OSError, the errors of `replace`, UnusableStateError, and DivergedError if the weights are
        not finite; nothing is written then."""
        finite(algorithm.acting_state(), train_iter=progress.counters.train_iter)
        path = self.run.checkpoint(progress.counters.train_iter)
        record = checkpoint.save(
            path,
            algorithm,
            progress,
            config=self.config,
            rngs=rngs,
            replace=self.replace,
            checks=not self._checked,
        )
        self._checked = True
        self.logbook.say("learner", f"saved checkpoint {path}")
        if self.config.log.histograms:
            self._show_weights(algorithm, progress.counters)
        interval_s = min(EXPORT_INTERVAL_S, self._export_s / EXPORT_SHARE)
        if reason in EXPORTED or self.clock() - self._exported_s >= interval_s:
            self._export(algorithm, progress.counters)
        return record

    def report(
        self, metrics: Mapping[str, float], *, train_iter: int, env_step: int, settings: Values, world_size: int = 1
    ) -> None:
        """Log the algorithm's metrics since the last report, the number of ranks, the collectors' exploration, and
        changed settings."""
        variables = {**metrics, **declaration(self.config).exploration_at(env_step)}
        self.logbook.emit(
            LearnReport(
                train_iter=train_iter, env_step=env_step, variables=variables, settings=settings, world_size=world_size
            )
        )

    def _show_weights(self, algorithm: Algorithm, counters: Counters) -> None:
        """Log histograms of the saved weights."""
        weights = weight_histograms(algorithm.network)
        train_iter, env_step = counters.train_iter, counters.env_step
        self.logbook.emit(HistogramReport(train_iter=train_iter, env_step=env_step, of="weights", histograms=weights))

    def _export(self, algorithm: Algorithm, counters: Counters) -> None:
        """Write model/ again. A failure is logged and loses nothing: model/ is a convenience."""
        self._exported_s, traced = self.clock(), self._exporter is not None
        try:
            if algorithm.portable() is None:
                if counters.train_iter == 0:
                    self.logbook.say("learner", "no model/ is written: the algorithm has no portable form")
                return
            if self._exporter is None:
                self._exporter = Exporter(algorithm, self.config)
            self._exporter.export(self.run.model, counters, replace=self.replace)
            if traced:
                self._export_s = self.clock() - self._exported_s
        except SupersededError:
            raise
        except Exception as error:  # torch's tracer has a type of its own for every obstacle; the weights are saved
            text = f"{self.run.model} could not be written; the run continues: {type(error).__name__}: {error}"
            self.logbook.say("learner", text, level="warning")
