"""Work that may take long, done by threads: calls that belong together run one after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

WAITING_AT_MOST = 64
"""Of one kind: beyond that somebody asks faster than the disk answers."""


class BusyError(Exception):
    """So much of this kind waits already that no more is taken."""


class Errands:
    """Runs calls in the background. Calls of the same key run in order, those of different keys side by side.

    A key has a thread only while something of it waits. `put` is for one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def put(self, key: str, call: Callable[[], None]) -> None:
        """Have this called, after all of the same key before it. It must not raise. Raises BusyError."""
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
        """How many calls of this key have not begun."""
        with self._lock:
            return len(self._waiting.get(key, ()))

    def _run(self, key: str) -> None:
        while (call := self._next(key)) is not None:
            call()

    def _next(self, key: str) -> Callable[[], None] | None:
        with self._lock:
            waiting = self._waiting[key]
            if waiting:
                return waiting.popleft()
            del self._waiting[key]
            return None
