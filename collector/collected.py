"""Chunks of experience from a rollout, with the metrics of the policy, and their sums for a collector's reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from remuda.buffer.chunk import chunk_name
from remuda.collector.steps import Slots
from remuda.config.schema import ExperimentConfig
from remuda.environments.spaces import Array
from remuda.logbook.episode_reports import CollectReport, CollectTotals, CollectWindow
from remuda.logbook.statistics import merged, weighted_means
from remuda.policy.base import Policy
from remuda.wire.messages import LARGEST_METRIC, ChunkId, ChunkMeta, Counters, MetricMean, PolicyRef


class CorruptExperienceError(ValueError):
    """Unusable experience: a number that is not finite, or an impossible ending."""

    def __init__(self, problem: str, *, env_index: int, vector_step: int) -> None:
        super().__init__(f"environment {env_index} {problem} at step {vector_step} of the vector")
        self.env_index = env_index
        self.vector_step = vector_step


@dataclass(frozen=True)
class Collected:
    """A chunk of experience, ready to be written."""

    columns: dict[str, Array]
    """By name; see NStepRows, SegmentRows and UnrollRows. Observations are float32 (or float64, see
    Actor.keeps_float64) or the space's integer type, actions the space's type."""
    env_steps: int
    """Environment steps really taken for this chunk (resets not counted)."""
    policy: PolicyRef
    """The oldest policy of the chunk."""
    episode_returns: list[float]
    """Undiscounted, unclipped, of whole games; in order of ending."""
    episode_lengths: list[int]
    collect_s: float
    episode_info: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Further numbers of the episodes, by name: the discounted return and the requested info. Episodes without a number
    are left out."""
    metrics: dict[str, MetricMean] = field(default_factory=dict[str, MetricMean])
    """Metrics of the policy for these steps; see Policy.collected_metrics."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Counted events, by their names in logs and curves."""
    task: int = 0
    """Number of the task."""
    slots: Slots | None = None
    """All slots of the chunk, if they are kept."""

    @property
    def rows(self) -> int:
        """Rows in every column."""
        return len(self.columns["reward"])

    def meta(self, chunk: ChunkId) -> ChunkMeta:
        """Return the metadata, without size and checksum of the payload file; see write_chunk."""
        return ChunkMeta(
            chunk=chunk,
            file=chunk_name(chunk),
            rows=self.rows,
            env_steps=self.env_steps,
            payload_bytes=sum(column.nbytes for column in self.columns.values()),
            checksum=0,
            policy=self.policy,
            collect_s=self.collect_s,
            episode_returns=self.episode_returns,
            episode_lengths=self.episode_lengths,
            episode_info=self.episode_info,
            metrics=self.metrics,
            task=self.task,
        )


class MetricError(ValueError):
    """Undeclared metrics of a policy, or metrics for the wrong number of steps."""


def metric_means(policy: Policy, columns: Mapping[str, Array], names: Set[str], *, steps: int) -> dict[str, MetricMean]:
    """Compute a policy's metrics for a chunk; return the mean of each over the steps with a value, by name. A metric
    without a value is left out. `columns`: see Policy.collected_metrics; `names`: Declaration.collected.

    Raises MetricError for an unknown name, or for other than one number per step.
    """
    means: dict[str, MetricMean] = {}
    for name, of_steps in policy.collected_metrics(columns).items():
        if name not in names:
            raise MetricError(f"{_who(policy)} returned {name!r}, which its declaration does not list in `collected`")
        values = np.asarray(of_steps, np.float64)
        if values.shape != (steps,):
            raise MetricError(f"{_who(policy)} returned {name!r} of shape {values.shape} for {steps} steps")
        finite = values[np.abs(values) <= LARGEST_METRIC]  # nor nan
        if finite.size:
            means[name] = MetricMean(float(finite.mean()), finite.size)
    return means


def _who(policy: Policy) -> str:
    return f"{type(policy).__name__}.collected_metrics"


class CollectSummary:
    """Sums up chunks. A report is due after a finished episode and `interval` updates since the report before (by the
    iteration of the acting policy); the first is due with the first finished episode."""

    def __init__(
        self,
        interval: int,
        *,
        in_env_steps: bool = False,
        before: Counters | None = None,
        rows: int | None = None,
        has_tasks: bool = False,
    ) -> None:
        """`in_env_steps`: the interval counts environment steps instead of updates. `before`: counters of a resumed
        run, on which the totals continue (seconds from 0), with its `rows`; None is one row per step."""
        start = before or Counters()
        self._interval = interval
        self._in_env_steps = in_env_steps
        self._reported: int | None = None
        self._window: list[Collected] = []
        self._env_steps = start.env_step
        self._rows = start.env_step if rows is None else rows
        self._episodes = start.episode
        self._duration_s = 0.0
        self._counts = Counter[str]()
        self._has_tasks = has_tasks
        self._task = 0

    @classmethod
    def of(cls, config: ExperimentConfig, *, before: Counters | None = None, rows: int | None = None) -> CollectSummary:
        """Return a summary with the report interval of this config. Runs without learning count environment steps,
        since they have no updates."""
        has_tasks = bool(config.env.schedule)
        if config.learner.inference:
            interval = config.log.progress_interval_env_steps
            return cls(interval, in_env_steps=True, before=before, rows=rows, has_tasks=has_tasks)
        return cls(config.log.interval_train_iters, before=before, rows=rows, has_tasks=has_tasks)

    def add(self, collected: Collected) -> None:
        """A chunk was collected."""
        self._window.append(collected)
        self._env_steps += collected.env_steps
        self._rows += collected.rows
        self._episodes += len(collected.episode_returns)
        self._duration_s += collected.collect_s
        self._counts.update(collected.counts)
        self._task = collected.task

    def due(self, *, train_iter: int, env_step: int, last: bool = False) -> CollectReport | None:
        """Return the due report, or None. `train_iter` belongs to the acting policy. `last`, at the end of a lease,
        returns a report of all steps since the report before."""
        now = self._env_steps if self._in_env_steps else train_iter
        passed = self._reported is None or now - self._reported >= self._interval
        if last:
            is_due = any(collected.env_steps for collected in self._window)
        else:
            is_due = passed and any(collected.episode_returns for collected in self._window)
        if not is_due:
            return None
        self._reported = now
        window, self._window = self._window, []
        return CollectReport(
            train_iter=train_iter,
            env_step=env_step,
            window=CollectWindow(
                env_steps=sum(collected.env_steps for collected in window),
                train_samples=sum(collected.rows for collected in window),
                duration_s=sum(collected.collect_s for collected in window),
                episode_returns=[value for collected in window for value in collected.episode_returns],
                episode_lengths=[value for collected in window for value in collected.episode_lengths],
                episode_info=merged(collected.episode_info for collected in window),
                metrics=weighted_means(collected.metrics for collected in window),
                counts=sum((collected.counts for collected in window), Counter[str]()),
            ),
            totals=CollectTotals(
                env_steps=self._env_steps,
                train_samples=self._rows,
                episodes=self._episodes,
                duration_s=self._duration_s,
                counts=self._counts.copy(),
            ),
            task=self._task if self._has_tasks or self._task else None,
        )
