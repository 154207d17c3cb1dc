"""Work that may take long, done by threads: calls with the same key run one after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

WAITING_AT_MOST = 64
"""The most calls of one kind that may wait: with more, requests come faster than the disk answers."""


class BusyError(Exception):
    """Too many calls of this kind wait already."""


class Errands:
    """Runs calls in the background. Calls of the same key run in order, those of different keys at the same time.

    A key has a thread only while calls of it wait or run. `put` is for one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all_done = threading.Condition(self._lock)
        """Notified when no call of some key waits or runs any more."""
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def put(self, key: str, call: Callable[[], None]) -> None:
        """Queue a call, after all calls of the same key. It must not raise. Raises BusyError."""
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is not None:
                if len(waiting) >= WAITING_AT_MOST:
                    raise BusyError(f"{len(waiting)} requests wait already: ask again in a moment")
                waiting.append(call)
                return
            self._waiting[key] = deque([call])
        threading.Thread(target=self._run, args=(key,), name=f"errands: {key}", daemon=True).start()

    def waiting(self, key: str) -> int:
        """The number of calls of this key that have not begun."""
        with self._lock:
            return len(self._waiting.get(key, ()))

    def wait(self, key: str, longest_s: float) -> bool:
        """Wait until no call of this key waits or runs, at most so long; returns whether that is so."""
        with self._all_done:
            return self._all_done.wait_for(lambda: key not in self._waiting, longest_s)

    def _run(self, key: str) -> None:
        while (call := self._next(key)) is not None:
            call()

    def _next(self, key: str) -> Callable[[], None] | None:
        with self._lock:
            waiting = self._waiting[key]
            if waiting:
                return waiting.popleft()
            del self._waiting[key]
            self._all_done.notify_all()
            return None
