"""Histograms of a policy's actions, counted at once to save memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from remuda.logbook.statistics import counted, put_together
from remuda.policy.spaces import ActionSpec
from remuda.wire.messages import MOST_ACTION_DIMENSIONS, Histogram

BUCKETS = 64
"""Buckets for each number of an action; also the most buckets of discrete actions, shared above this number."""
_WIDEST = 1_000.0
"""Above this range a number is counted as unbounded."""
_AT_ONCE = 4_096
"""Most actions kept before counting."""


class ActionCounts:
    """Histograms of the actions of one evaluation. Buckets depend on the action space alone, so that histograms of
    several evaluators can be merged."""

    def __init__(self, action: ActionSpec) -> None:
        self._edges = _edges(action)
        self._waiting: list[NDArray[np.generic]] = []
        self._kept = 0
        self._counted: dict[str, Histogram] = {}

    def add(self, actions: NDArray[np.generic]) -> None:
        """Count actions [n, …] in the form of the environment."""
        self._waiting.append(actions.copy())
        self._kept += len(actions)
        if self._kept >= _AT_ONCE:
            self._count()

    def histograms(self) -> dict[str, Histogram]:
        """Return histograms of all actions so far: `action` for discrete actions; `action_0`, `action_1` … for the
        numbers of a Box or the components of other spaces, up to MOST_ACTION_DIMENSIONS. Empty without actions."""
        self._count()
        return dict(self._counted)

    def _count(self) -> None:
        if not self._kept:
            return
        actions = np.concatenate(self._waiting)
        columns = actions.reshape(len(actions), -1)
        self._waiting, self._kept = [], 0
        for column, (name, edges) in enumerate(self._edges.items()):
            new, before = counted(columns[:, column], edges), self._counted.get(name)
            self._counted[name] = new if before is None else put_together(before, new)


def _edges(action: ActionSpec) -> dict[str, NDArray[np.float64]]:
    if action.n is not None:
        return {"action": _edges_of(action.n, action.start)}
    if action.counts:
        each = [_edges_of(count, start) for count, start in zip(action.counts, action.starts, strict=True)]
    else:
        each = [_edges_between(low, high) for low, high in zip(action.low, action.high, strict=True)]
    return {f"action_{number}": edges for number, edges in enumerate(each[:MOST_ACTION_DIMENSIONS])}


def _edges_of(count: int, start: int) -> NDArray[np.float64]:
    """Return the edges of one bucket for each of `count` integers, or of fewer buckets for many integers."""
    first = start - 0.5
    return np.linspace(first, first + count, min(count, BUCKETS) + 1)


def _edges_between(low: float | None, high: float | None) -> NDArray[np.float64]:
    """Return the edges of buckets of equal width between bounds. Without bounds, buckets grow from 0.001 to 1000 on
    both sides of 0, with one bucket beyond."""
    if low is not None and high is not None and 0.0 < high - low <= _WIDEST:
        return np.linspace(low, high, BUCKETS + 1)
    outer = np.append(np.geomspace(1e-3, 1e3, BUCKETS // 2 - 1), 1e9)
    return np.concatenate([-outer[::-1], outer])
