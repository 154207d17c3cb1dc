"""The learner's loop: batches in; updates, priorities and metrics out. Opens no socket, file or clock."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.logbook.statistics import Statistics, mean
from remuda.logbook.timers import Timers
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.networks.flat_parameters import keep_freed_memory
from remuda.policy.networks.tensors import denormals_are_zero, threads
from remuda.policy.saved_state import NotFinite, require_finite
from remuda.worker.serve import HopelessError

_ADVICE = (
    "the checkpoints and the model that were saved before are kept; try a lower learner.learning_rate or "
    "learner.max_grad_norm, and look for extreme rewards and observations"
)


class DivergedError(HopelessError):
    """Training has diverged."""

    def __init__(self, what: str) -> None:
        super().__init__(f"training has diverged: {what}; {_ADVICE}")


def finite(state: Mapping[str, np.ndarray], *, train_iter: int) -> Mapping[str, np.ndarray]:
    """Return a policy's state. Raises DivergedError if it contains NaN or infinity."""
    try:
        require_finite(state)
    except NotFinite as error:
        raise DivergedError(f"after update {train_iter}, {error}") from error
    return state


KEPT = 1_000_000
"""Largest number of kept numbers of a metric, the newest. Reached only if reports are far apart."""
JOINED = 1_000
"""Updates between two joins of all kept metrics to one tensor: many small tensors take much more memory."""


class Metrics:
    """Collects the metrics of updates; adding some does not wait for the device."""

    def __init__(self, with_statistics: Collection[str]) -> None:
        """`with_statistics` is Declaration's."""
        self._with_statistics = with_statistics
        self._values: dict[str, list[float | torch.Tensor]] = {}
        self._updates = 0

    def add(self, metrics: Mapping[str, float | torch.Tensor]) -> None:
        """Keep the metrics of an update; see LearnResult."""
        for name, values in metrics.items():
            self._values.setdefault(name, []).append(values)
        self._updates += 1
        if self._updates % JOINED == 0:
            self._values = {name: _joined(values) for name, values in self._values.items()}

    @property
    def is_empty(self) -> bool:
        """True if no update was made since the last `take`."""
        return not self._values

    def take(self) -> dict[str, float]:
        """Summarise the metrics since the last call; empty without updates. Waits for the device.

        First the mean of each metric by its name, then further statistics of metrics with statistics. Every number has
        the same weight: for a metric with a number per row, every row.
        """
        collected, self._values = self._values, {}
        averages: dict[str, float] = {}
        others: dict[str, float] = {}
        for name, values in collected.items():
            if name in self._with_statistics:
                statistics = Statistics.of(on_host(values))
                averages[name] = statistics.mean
                others |= statistics.besides_mean(name)
            else:
                averages[name] = mean(on_host(values))
        return averages | others


def on_host(values: Sequence[float | torch.Tensor]) -> NDArray[np.float64]:
    """Copy all numbers to the host: float64 [n]. Waits for the device."""
    numbers, tensors = _apart(values)
    parts = [np.array(numbers, np.float64)] + [tensor.detach().cpu().double().numpy() for tensor in tensors]
    return np.concatenate(parts)


def _joined(values: Sequence[float | torch.Tensor]) -> list[float | torch.Tensor]:
    """Join tensors, and keep the newest KEPT plain numbers and the newest KEPT numbers of tensors."""
    numbers, tensors = _apart(values)
    joined = torch.cat(tensors)[-KEPT:] if tensors else None
    return [*([] if joined is None else [joined]), *numbers[-KEPT:]]


def _apart(values: Sequence[float | torch.Tensor]) -> tuple[list[float], list[torch.Tensor]]:
    """Separate plain numbers from tensors, which become at most two tensors [n], of vectors and of scalars."""
    numbers: list[float] = [value for value in values if not isinstance(value, torch.Tensor)]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    single = [tensor for tensor in tensors if not tensor.dim()]
    longer = [tensor if tensor.dim() == 1 else tensor.flatten() for tensor in tensors if tensor.dim()]
    return numbers, [*([torch.cat(longer)] if longer else []), *([torch.stack(single)] if single else [])]


GRAD_NORM = "grad_norm"
"""Metric of all algorithms: the norm of the gradient before clipping."""


@dataclass(frozen=True)
class Batch:
    """Rows to learn from."""

    rows: NDArray[np.int64]
    """int64 [batch]: row ids in the replay index."""
    columns: Mapping[str, np.ndarray]
    """Declared columns, and `weights` (float32 importance weights), [batch, …] each."""
    env_step: int = 0
    """Accepted environment steps at the time of sampling."""


class BatchSource(Protocol):
    """Source of batches: the prefetcher in parallel mode, the replay index in serial mode."""

    def next_batch(self) -> Batch | None:
        """Return the next batch; None before its arrival."""
        ...


@dataclass(frozen=True)
class Step:
    """Result of a step of the loop, and the tasks due after it."""

    trained: bool
    """False without a batch: nothing happened, and nothing is due."""
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
    """Counts updates, and keeps their results until requested.

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
        monitored: Collection[str] = (),
        with_statistics: Collection[str] = (),
        timers: Timers | None = None,
        learn: Callable[[Arrays], LearnResult] | None = None,
        update_threads: int | None = None,
        follow: Callable[[int], None] = lambda env_step: None,
    ) -> None:
        """A report is due every `report_interval_iters` updates, and after every `report_interval_env_steps`
        environment steps, so rare updates are reported, too. `monitored` and `with_statistics` are the
        declaration's. `learn` replaces the algorithm's method, for several ranks. `update_threads`: torch's threads in
        an update; None: unchanged. `follow` is called before each update with the env_step of its batch."""
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
        self._missing = dict.fromkeys(monitored)
        """Declared metrics that no update has returned so far, in the declared order."""
        self._missing_from = train_iter + report_interval_iters
        """From this update on a metric is missing. Some are returned once per `report_interval_iters` updates."""
        self._grad_norms: list[float | torch.Tensor] = []
        """The gradient norms of the updates since the last check."""
        self._rows: list[NDArray[np.int64]] = []
        self._priorities: list[torch.Tensor] = []

    def step(self) -> Step:
        """Train on one batch, if available."""
        with self._timers("gather"):
            batch = self._source.next_batch()
        if batch is None:
            return Step(trained=False)
        self._follow(batch.env_step)
        # Threads begin within the first update, and then also take denormals for zero.
        with self._timers("update"), denormals_are_zero(), threads(self._update_threads):
            result = self._learn(batch.columns)
        _require_result(result)
        before, self.train_iter = self.train_iter, self.train_iter + result.updates
        self._metrics.add(result.metrics)
        for name in [name for name in self._missing if name in result.metrics]:
            del self._missing[name]
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
        """True if a row of progress.txt is due between the update before and `env_step`."""
        before, self._env_step = self._env_step, max(self._env_step, env_step)
        return _crosses(before, self._env_step, self._report_interval_env_steps)

    def take_priorities(self) -> Priorities:
        """Return the priorities since the last call, once; possibly empty."""
        rows, priorities = self._rows, self._priorities
        self._rows, self._priorities = [], []
        if not rows:
            return Priorities(np.empty(0, np.int64), np.empty(0, np.float32))
        return Priorities(np.concatenate(rows), torch.cat(priorities).cpu().numpy())

    def require_finite(self) -> None:
        """Raise DivergedError if a gradient since the last check was not finite. Waits for the device."""
        collected, self._grad_norms = self._grad_norms, []
        norms = on_host(collected)
        if not np.isfinite(norms).all():
            raise DivergedError(f"of the last {len(norms)} gradients up to update {self.train_iter} one is not finite")

    @property
    def has_metrics(self) -> bool:
        """True if updates were made since the last call of take_metrics."""
        return not self._metrics.is_empty

    def take_metrics(self) -> dict[str, float]:
        """Sum up the algorithm's metrics over the updates since the last call, as Metrics.take describes. Raises
        DivergedError if a gradient was not finite."""
        self.require_finite()
        return self._metrics.take()

    def take_missing(self) -> list[str]:
        """Return the declared metrics that no update has returned, once, as soon as enough updates were made."""
        if self.train_iter < self._missing_from:
            return []
        missing, self._missing = list(self._missing), {}
        return missing


def _require_result(result: object) -> None:
    if not isinstance(result, LearnResult):  # of an algorithm of the user's own
        raise TypeError(f"`learn` of the algorithm should return a remuda.LearnResult, not {reprlib.repr(result)}")


def _crosses(before: int, after: int, interval: int) -> bool:
    """True if a multiple of `interval` lies after `before`, up to `after`."""
    return before // interval < after // interval
