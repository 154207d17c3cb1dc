"""From the events of a run to the times in which a role had no worker, or the disk held the run up."""

from __future__ import annotations

from collections import deque

from remuda.logbook.series import Event

HELD_UP = "held_up"
MOST_SPANS = 1_000
"""Of one kind; the newest are kept."""
_COMES = ("worker_joined", "worker_back")
_GOES = ("worker_left", "worker_died", "worker_failed")


class Spans:
    """Takes events in their order, and keeps when each role had nobody, and when the run was held up."""

    def __init__(self) -> None:
        self._present: dict[str, set[str]] = {}
        self._since_s: dict[str, float] = {}
        """Begin of the span that is open, by role or HELD_UP."""
        self._over: dict[str, deque[tuple[float, float]]] = {}
        self._ended_s: float | None = None

    @property
    def roles(self) -> list[str]:
        """The roles that had a worker."""
        return list(self._present)

    def take(self, event: Event) -> None:
        """Note one event."""
        role, worker = event.role, event.worker
        if event.event == "run_ends":
            self._ended_s = event.wall_s
        elif event.event == HELD_UP:
            self._since_s.setdefault(HELD_UP, event.wall_s)
        elif event.event == "goes_on":
            self._close(HELD_UP, event.wall_s)
        elif role is not None and worker is not None:
            self._worker(event, role, worker)

    def lasting(self, kind: str, until_s: float) -> list[tuple[float, float]]:
        """Begin and end, in seconds since the run began, of each time without a worker of this role, or while the run
        was HELD_UP; one that goes on ends `until_s`, or with the run."""
        found = list(self._over.get(kind, ()))
        end_s = until_s if self._ended_s is None else min(self._ended_s, until_s)
        since_s = self._since_s.get(kind)
        if since_s is not None and since_s < end_s:
            found.append((since_s, end_s))
        return found

    def _worker(self, event: Event, role: str, worker: str) -> None:
        if event.event in _COMES:
            if role not in self._present:  # the first one: nobody was there before
                self._present[role] = set()
                self._since_s[role] = 0.0
            if self._ended_s is not None and event.event == "worker_joined":
                self._ended_s = None  # it was resumed
            self._present[role].add(worker)
            self._close(role, event.wall_s)
        elif event.event in _GOES and role in self._present:
            self._present[role].discard(worker)
            if not self._present[role]:
                self._since_s.setdefault(role, event.wall_s)

    def _close(self, kind: str, end_s: float) -> None:
        begin_s = self._since_s.pop(kind, None)
        if begin_s is not None and end_s > begin_s:
            self._over.setdefault(kind, deque(maxlen=MOST_SPANS)).append((begin_s, end_s))


def covered(spans: list[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """The share of the time from `begin_s` to `end_s` that the spans, which do not overlap, cover."""
    if end_s <= begin_s:
        return 0.0
    inside = sum(max(min(end_s, end) - max(begin_s, begin), 0.0) for begin, end in spans)
    return min(inside / (end_s - begin_s), 1.0)
