"""Threads beside the coordinator's loop: slow calls, a watch over keys, and the wakeup of the loop."""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable

from remuda.logbook.lines import unforgeable
from remuda.wire.keys.authorized import AuthorizedKeys
from remuda.wire.keys.secret_file import KeyFileError

WAITING_AT_MOST = 64
"""Maximum number of waiting calls of a kind: beyond, requests come faster than the disk answers."""
LOOK_INTERVAL_S = 0.5
"""Between two looks at the file."""
_KEY = "authorized keys"


class BusyError(Exception):
    """Too many calls of this kind wait already."""


class Jobs:
    """Runs calls in the background: in order for the same key, at the same time for different keys.

    A key has a thread only while calls of this key wait or run. `put` is for one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all_done = threading.Condition(self._lock)
        """Notified when no call of some key waits or runs any more."""
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def put(self, key: str, call: Callable[[], None]) -> None:
        """Queue a call, after all calls of the same key. The call must not raise. Raises BusyError."""
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is not None:
                if len(waiting) >= WAITING_AT_MOST:
                    raise BusyError(f"{len(waiting)} requests wait already: ask again in a moment")
                waiting.append(call)
                return
            self._waiting[key] = deque([call])
        threading.Thread(target=self._run, args=(key,), name=f"jobs: {key}", daemon=True).start()

    def waiting(self, key: str) -> int:
        """Number of calls of this key that have not begun."""
        with self._lock:
            return len(self._waiting.get(key, ()))

    def wait(self, key: str, longest_s: float) -> bool:
        """Wait until no call of this key waits or runs; return False if `longest_s` passed before."""
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


class KeyWatch:
    """Looks at the file from time to time, in the background."""

    def __init__(self, authorized: AuthorizedKeys) -> None:
        self._authorized = authorized
        self._jobs = Jobs()
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._looking = False
        self._due_s = 0.0

    def changed(self, now_s: float) -> set[str]:
        """Return the names with a changed key or right since the last call: these connections have to be made again."""
        with self._lock:
            if now_s >= self._due_s and not self._looking:
                self._looking, self._due_s = True, now_s + LOOK_INTERVAL_S
                self._jobs.put(_KEY, self._look)
            changed, self._changed = self._changed, set()
        return changed

    def _look(self) -> None:
        changed: frozenset[str] = frozenset()
        try:
            changed = self._authorized.look()
        except KeyFileError as error:
            print(unforgeable(f"the former list of keys is still used: {error}"), file=sys.stderr, flush=True)
        finally:
            with self._lock:
                self._changed |= changed
                self._looking = False


class Wakeup:
    """A pair of sockets: `fileno` becomes readable when a thread has called `wake`."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._receiver.fileno()

    def wake(self) -> None:
        """Wake the waiting thread. For any thread; harmless after `close`."""
        with contextlib.suppress(OSError):  # there are plenty of reasons to wake up already
            self._sender.send(b"\0")

    def clear(self) -> None:
        """Clear the signal, to wait for the next."""
        with contextlib.suppress(BlockingIOError):
            while self._receiver.recv(4_096):
                pass

    def wait(self, timeout_s: float) -> None:
        """Wait until `wake` is called, or the time is over."""
        poll = select.poll()  # select() itself takes no descriptor above 1,023
        poll.register(self._receiver, select.POLLIN)
        poll.poll(1_000 * timeout_s)
        self.clear()

    def close(self) -> None:
        """Close both ends."""
        self._receiver.close()
        self._sender.close()
