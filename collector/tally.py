"""From chunks to the collector's reports: when one is due, and what has happened since the one before."""

from __future__ import annotations

from remuda.collector.rollout import Collected
from remuda.logbook.reports import CollectReport, CollectTotals, CollectWindow
from remuda.wire.messages import Counters


class CollectTally:
    """Sums up what one collector did. A report is due when an episode has ended since the last one, and at least
    `interval_train_iters` updates have been done since then."""

    def __init__(self, interval_train_iters: int, *, before: Counters | None = None) -> None:
        """`before`: what a resumed run had counted, with which the totals go on (a row per step; seconds from 0)."""
        self._interval = interval_train_iters
        self._next_train_iter = 0
        self._env_steps = self._rows = 0
        self._duration_s = 0.0
        self._returns: list[float] = []
        self._lengths: list[int] = []
        start = before or Counters()
        self._totals = CollectTotals(
            env_steps=start.env_step, train_samples=start.env_step, episodes=start.episode, duration_s=0.0
        )

    def add(self, collected: Collected) -> None:
        """A chunk was collected."""
        self._env_steps += collected.env_steps
        self._rows += collected.rows
        self._duration_s += collected.collect_s
        self._returns += collected.episode_returns
        self._lengths += collected.episode_lengths

    def due(self, train_iter: int) -> bool:
        """Whether to report now; `train_iter` is that of the policy that acts."""
        return bool(self._returns) and train_iter >= self._next_train_iter

    def report(self, *, train_iter: int, env_step: int) -> CollectReport:
        """Sum up and start over; `env_step` places the report in the run."""
        window = CollectWindow(
            env_steps=self._env_steps,
            train_samples=self._rows,
            duration_s=self._duration_s,
            episode_returns=self._returns,
            episode_lengths=self._lengths,
        )
        self._totals = CollectTotals(
            env_steps=self._totals.env_steps + window.env_steps,
            train_samples=self._totals.train_samples + window.train_samples,
            episodes=self._totals.episodes + len(window.episode_returns),
            duration_s=self._totals.duration_s + window.duration_s,
        )
        self._env_steps = self._rows = 0
        self._duration_s = 0.0
        self._returns, self._lengths = [], []
        self._next_train_iter = train_iter + self._interval
        return CollectReport(train_iter=train_iter, env_step=env_step, window=window, totals=self._totals)


def first_line(*, chunk_env_steps: int, num_envs: int) -> str:
    """What a collector's log starts with."""
    return f"n_sample: {chunk_env_steps}, env_num: {num_envs}"
