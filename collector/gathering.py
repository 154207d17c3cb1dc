"""Which requests of collectors an inference worker computes together, and when. Reads no clock and opens no socket."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.wire.inference import Arrays, Ask
from remuda.wire.messages import PolicyRef

WAIT_S = 0.002
"""Longest wait for requests of further collectors."""
KNOWN_S = 1.0
"""A collector without a request for this time is no longer waited for."""
MOST_ROWS = 4_096
"""Observations in one batch; more are computed in turn."""

_Key = tuple[int, int, str, PolicyRef, tuple[tuple[str, str, tuple[int, ...]], ...]]


@dataclass(frozen=True)
class Request:
    """An Ask of a collector."""

    peer: bytes
    ask: Ask
    arrays: Arrays
    came_s: float


class Gathering:
    """Open requests. Each collector has one at most: it waits for the answer, and a new request replaces the former."""

    def __init__(self) -> None:
        self._open: dict[bytes, Request] = {}
        """By collector, the oldest first."""
        self._last_s: dict[bytes, float] = {}
        """Time of the last request, by collector."""

    @property
    def collectors(self) -> int:
        """Number of known collectors."""
        return len(self._last_s)

    def add(self, peer: bytes, ask: Ask, arrays: Arrays, now_s: float) -> None:
        """Note a request."""
        self._last_s[peer] = now_s
        former = self._open.pop(peer, None)
        came_s = former.came_s if former is not None and former.ask.number == ask.number else now_s
        self._open[peer] = Request(peer, ask, arrays, came_s)

    def due_s(self, now_s: float) -> float:
        """Return the time at which to compute: now if all known collectors wait, else WAIT_S after the oldest request;
        infinite without requests."""
        if not self._open:
            return math.inf
        self._last_s = {
            peer: last for peer, last in self._last_s.items() if now_s - last < KNOWN_S or peer in self._open
        }
        if len(self._open) == len(self._last_s):
            return now_s
        return min(request.came_s for request in self._open.values()) + WAIT_S

    def take(self, now_s: float) -> list[list[Request]]:
        """Return the requests that are due, those computed together in one list; nothing before `due_s`."""
        if self.due_s(now_s) > now_s:
            return []
        groups: dict[_Key, list[Request]] = {}
        for request in self._open.values():
            groups.setdefault(_key(request.ask), []).append(request)
        self._open = {}
        return [batch for group in groups.values() for batch in _within(group, MOST_ROWS)]

    def put_back(self, requests: Sequence[Request]) -> None:
        """Keep requests that cannot be computed now, unless their collectors have asked something else since."""
        self._open = {request.peer: request for request in requests} | self._open


def compute(requests: Sequence[Request], function: Callable[[str, Arrays], Arrays]) -> list[Arrays]:
    """Compute requests of one batch together; returns the arrays of each answer. Raises ValueError if the function
    returns another number of rows."""
    first = requests[0]
    if len(requests) == 1:
        joint: Arrays = first.arrays
    else:
        joint = {name: np.concatenate([each.arrays[name] for each in requests]) for name in first.arrays}
    found = function(first.ask.output, joint)
    ends = np.cumsum([request.ask.rows for request in requests])
    for name, array in found.items():
        if len(array) != ends[-1]:
            raise ValueError(f"{first.ask.output}: {len(array)} rows of {name} for {ends[-1]} observations")
    parts: Mapping[str, list[np.ndarray]] = {name: np.split(array, ends[:-1]) for name, array in found.items()}
    return [{name: part[index] for name, part in parts.items()} for index in range(len(requests))]


def _key(ask: Ask) -> _Key:
    """Requests with equal keys are computed together."""
    forms = tuple((form.name, form.dtype, form.shape[1:]) for form in ask.arrays)
    return ask.policy_index, ask.place, ask.output, ask.policy, forms


def _within(group: Sequence[Request], most_rows: int) -> list[list[Request]]:
    batches: list[list[Request]] = [[]]
    rows = 0
    for request in group:
        if batches[-1] and rows + request.ask.rows > most_rows:
            batches.append([])
            rows = 0
        batches[-1].append(request)
        rows += request.ask.rows
    return batches
