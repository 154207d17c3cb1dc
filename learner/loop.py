"""The learner's loop: batches in; updates, priorities and metrics out. Opens no socket, file or clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.schema import ExperimentConfig
from remuda.learner.diverged import DivergedError, finite
from remuda.learner.metrics import Metrics, on_host
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import declaration
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.networks.lasting_memory import keep_freed_memory
from remuda.policy.networks.tensors import denormals_are_zero, threads
from remuda.policy.row_plan import RowPlan

GRAD_NORM = "grad_norm"
"""The metric in which every algorithm reports the norm of its gradient, before clipping."""


@dataclass(frozen=True)
class Batch:
    """Rows to learn from."""

    rows: NDArray[np.int64]
    """int64 [batch]: row ids in the replay index."""
    columns: Mapping[str, np.ndarray]
    """What the algorithm declares, plus `weights` (float32 importance weights), each [batch, …]."""
    env_step: int = 0
    """Environment steps that were accepted when the rows were drawn."""


class BatchSource(Protocol):
    """Where batches come from: the prefetcher in parallel mode, the index itself in serial mode."""

    def next_batch(self) -> Batch | None:
        """Hand over the next batch; None when there is none yet."""
        ...


@dataclass(frozen=True)
class Step:
    """What one call of the loop did, and what is due after it."""

    trained: bool
    """False: no batch was there, nothing happened, nothing is due."""
    publish_due: bool = False
    report_due: bool = False


@dataclass(frozen=True)
class Priorities:
    """The newest errors of rows trained on, for the replay index."""

    rows: NDArray[np.int64]
    """int64 [n]; a row trained on twice appears twice, the newer error later."""
    errors: NDArray[np.float32]
    """float32 [n]: absolute, before exponent and offset."""


class LearnerLoop:
    """Counts updates and keeps what they returned until it is requested.

    Until then metrics and priorities stay tensors on the learner's device, so no update waits for the device.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        source: BatchSource,
        *,
        publish_interval_iters: int,
        report_interval_iters: int,
        report_interval_env_steps: int = 1_000,
        train_iter: int = 0,
        env_step: int = 0,
        with_statistics: Collection[str] = (),
        timers: Timers | None = None,
        learn: Callable[[Arrays], LearnResult] | None = None,
        update_threads: int | None = None,
        follow: Callable[[int], None] = lambda env_step: None,
    ) -> None:
        """A report is due each `report_interval_iters` updates, and with the first update after each multiple of
        `report_interval_env_steps`: so seldom updates are reported, too. `with_statistics` is the declaration's.
        `learn` is called with each batch in place of the algorithm's, which several ranks do together. `update_threads`
        are torch's in an update; None: as they are. `follow` is called before each update with the env_step of its
        batch."""
        keep_freed_memory()
        self.algorithm = algorithm
        self._learn = learn or algorithm.learn
        self.train_iter = train_iter
        self._follow = follow
        self._update_threads = update_threads
        self._source = source
        self._timers = timers or Timers()
        self._publish_interval_iters = publish_interval_iters
        self._report_interval_iters = report_interval_iters
        self._report_interval_env_steps = report_interval_env_steps
        self._env_step = env_step
        """At the newest update."""
        self._metrics = Metrics(with_statistics)
        self._grad_norms: list[float | torch.Tensor] = []
        """The gradient norms of the updates since the last check."""
        self._rows: list[NDArray[np.int64]] = []
        self._priorities: list[torch.Tensor] = []

    @classmethod
    def of(
        cls,
        config: ExperimentConfig,
        plan: RowPlan,
        algorithm: Algorithm,
        source: BatchSource,
        *,
        train_iter: int,
        env_step: int = 0,
        timers: Timers,
        learn: Callable[[Arrays], LearnResult] | None = None,
        update_threads: int | None = None,
        follow: Callable[[int], None],
    ) -> LearnerLoop:
        """A loop that publishes, reports and averages as the config says. `train_iter` and `env_step` are where it
        continues, `learn` what learns in place of the algorithm, `follow` what brings settings up to a batch."""
        return cls(
            algorithm,
            source,
            publish_interval_iters=plan.publish_interval_iters,
            report_interval_iters=config.log.interval_train_iters,
            report_interval_env_steps=config.log.progress_interval_env_steps,
            train_iter=train_iter,
            env_step=env_step,
            with_statistics=declaration(config).with_statistics,
            timers=timers,
            learn=learn,
            update_threads=update_threads,
            follow=follow,
        )

    def step(self) -> Step:
        """Train on one batch, if there is one."""
        with self._timers("gather"):
            batch = self._source.next_batch()
        if batch is None:
            return Step(trained=False)
        self._follow(batch.env_step)
        # Threads begin within the first update, and then also take denormals for zero.
        with self._timers("update"), denormals_are_zero(), threads(self._update_threads):
            result = self._learn(batch.columns)
        before, self.train_iter = self.train_iter, self.train_iter + result.updates
        self._metrics.add(result.metrics)
        if GRAD_NORM in result.metrics:
            self._grad_norms.append(result.metrics[GRAD_NORM])
        if result.priorities is not None:
            self._rows.append(batch.rows)
            self._priorities.append(result.priorities)
        return Step(
            trained=True,
            publish_due=_crosses(before, self.train_iter, self._publish_interval_iters),
            report_due=_crosses(before, self.train_iter, self._report_interval_iters) | self._passes(batch.env_step),
        )

    def _passes(self, env_step: int) -> bool:
        """Whether a row of progress.txt stands between the update before this one and `env_step`."""
        before, self._env_step = self._env_step, max(self._env_step, env_step)
        return _crosses(before, self._env_step, self._report_interval_env_steps)

    def take_priorities(self) -> Priorities:
        """Return the priorities since the last call, each once; an empty one if there are none."""
        rows, priorities = self._rows, self._priorities
        self._rows, self._priorities = [], []
        if not rows:
            return Priorities(np.empty(0, np.int64), np.empty(0, np.float32))
        return Priorities(np.concatenate(rows), torch.cat(priorities).cpu().numpy())

    def require_finite(self) -> None:
        """Raise DivergedError if a gradient since the last check was not finite. Waits for the device."""
        told, self._grad_norms = self._grad_norms, []
        norms = on_host(told)
        if not np.isfinite(norms).all():
            raise DivergedError(f"of the last {len(norms)} gradients up to update {self.train_iter} one is not finite")

    def published_state(self) -> Mapping[str, np.ndarray]:
        """Copy what collectors are given to the host; see Algorithm. Raises DivergedError if the weights, or the
        gradients before them, are not finite."""
        self.require_finite()
        return finite(self.algorithm.published_state(), train_iter=self.train_iter)

    @property
    def has_metrics(self) -> bool:
        """Whether there were updates since the last call of take_metrics."""
        return not self._metrics.is_empty

    def take_metrics(self) -> dict[str, float]:
        """Sum up the algorithm's metrics over the updates since the last call, as Metrics.take describes. Raises
        DivergedError if a gradient was not finite."""
        self.require_finite()
        return self._metrics.take()


def _crosses(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` lies after `before`, up to `after`."""
    return before // interval < after // interval
