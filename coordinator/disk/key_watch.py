"""Notices changes of the list of authorized keys while a coordinator runs, without waiting for its disk."""

from __future__ import annotations

import sys
import threading

from remuda.coordinator.disk.errands import Errands
from remuda.logbook.lines import unforgeable
from remuda.wire.keys.authorized import AuthorizedKeys
from remuda.wire.keys.secret_file import KeyFileError

LOOK_INTERVAL_S = 0.5
"""Between two looks at the file."""
_KEY = "authorized keys"


class KeyWatch:
    """Looks at the file from time to time, in the background."""

    def __init__(self, authorized: AuthorizedKeys) -> None:
        self._authorized = authorized
        self._errands = Errands()
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._looking = False
        self._due_s = 0.0

    def changed(self, now_s: float) -> set[str]:
        """The names whose key or right has changed since the last call: their connections have to be made again."""
        with self._lock:
            if now_s >= self._due_s and not self._looking:
                self._looking, self._due_s = True, now_s + LOOK_INTERVAL_S
                self._errands.put(_KEY, self._look)
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
