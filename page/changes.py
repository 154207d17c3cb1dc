"""What has changed since it was last told: a stream tells that, and not everything again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from remuda.page.herd import WorkerView
from remuda.page.run_rows import RunRow

_Item = TypeVar("_Item")
_RSS_BITS = 24
"""Memory counts in steps of 16 MiB."""
_BEAT_S = 5.0
"""The age of the last beat counts in steps of so much; a worker that works is never so old."""


class Changes(Generic[_Item]):
    """Remembers, for each key, a summary of what was told; an item is told again when its summary is another."""

    def __init__(self, key: Callable[[_Item], str], summary: Callable[[_Item], Hashable]) -> None:
        self._key = key
        self._summary = summary
        self._told: Mapping[str, Hashable] = {}
        self.began = False
        """Whether anything was told."""

    def take(self, items: Iterable[_Item]) -> tuple[list[_Item], list[str]]:
        """The items that are new or have changed, and the keys that are gone; then all count as told."""
        told: dict[str, Hashable] = {}
        changed: list[_Item] = []
        for item in items:
            key, summary = self._key(item), self._summary(item)
            told[key] = summary
            if key not in self._told or self._told[key] != summary:
                changed.append(item)
        gone = [key for key in self._told if key not in told]
        self._told, self.began = told, True
        return changed, gone


def worker_summary(worker: WorkerView) -> Hashable:
    """With rounded numbers, since those of every worker change every second."""
    return (
        worker.incarnation,
        worker.state,
        worker.experiment,
        worker.activity,
        int(worker.beat_age_s // _BEAT_S),
        round(worker.cpu_cores, 1),
        worker.rss_bytes >> _RSS_BITS,
        None if worker.work_share is None else round(worker.work_share, 1),
    )


def row_key(row: RunRow) -> str:
    """What tells one run from the others."""
    return row.run if row.run is not None else row.experiment or row.name


def row_summary(row: RunRow) -> Hashable:
    """All but the time that passes."""
    return (
        row.state,
        row.reason,
        row.says,
        row.priority,
        row.env_step,
        row.train_iter,
        row.episode,
        row.last_return,
        row.best_return,
        row.policy_lag,
        row.samples_per_insert,
        row.group,
        row.live,
        row.note,
        *row.tags,
    )
