"""Work of a collector since its last report, and the time of the next."""

from __future__ import annotations

from collections import Counter

from remuda.collector.collected import Collected
from remuda.config.schema import ExperimentConfig
from remuda.logbook.episode_reports import CollectReport, CollectTotals, CollectWindow
from remuda.logbook.statistics import merged, weighted_means
from remuda.wire.messages import Counters


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
