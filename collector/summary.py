"""What a collector has done since its last report, and when the next is due."""

from __future__ import annotations

from remuda.collector.rollout import Collected
from remuda.logbook.episode_reports import CollectReport, CollectTotals, CollectWindow
from remuda.logbook.spread import merged
from remuda.wire.messages import Counters


class CollectSummary:
    """Sums chunks up. A report is due once an episode has finished and `interval_train_iters` updates have passed since
    the one before (by the iteration of the policy that acts); the first is due with the first finished episode."""

    def __init__(self, interval_train_iters: int, *, before: Counters | None = None) -> None:
        """`before`: what a resumed run had counted; the totals go on with it (a row per step, seconds from 0)."""
        start = before or Counters()
        self._interval = interval_train_iters
        self._reported_train_iter: int | None = None
        self._window: list[Collected] = []
        self._env_steps = self._rows = start.env_step
        self._episodes = start.episode
        self._duration_s = 0.0

    def add(self, collected: Collected) -> None:
        """A chunk was collected."""
        self._window.append(collected)
        self._env_steps += collected.env_steps
        self._rows += collected.rows
        self._episodes += len(collected.episode_returns)
        self._duration_s += collected.collect_s

    def due(self, *, train_iter: int, env_step: int) -> CollectReport | None:
        """The report that is due, if one is. `train_iter` is that of the acting policy."""
        passed = self._reported_train_iter is None or train_iter - self._reported_train_iter >= self._interval
        if not passed or not any(collected.episode_returns for collected in self._window):
            return None
        self._reported_train_iter = train_iter
        return self._report(train_iter, env_step)

    def last(self, *, train_iter: int, env_step: int) -> CollectReport | None:
        """What was not reported yet, once nothing more comes; None where no step was taken since."""
        if not any(collected.env_steps for collected in self._window):
            return None
        return self._report(train_iter, env_step)

    def _report(self, train_iter: int, env_step: int) -> CollectReport:
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
            ),
            totals=CollectTotals(
                env_steps=self._env_steps,
                train_samples=self._rows,
                episodes=self._episodes,
                duration_s=self._duration_s,
            ),
        )
