"""The writing end between a coordinator's loop and the process that serves its metrics. Writing never waits."""

from __future__ import annotations

import socket

import msgspec

from remuda.coordinator.monitoring.snapshot import Snapshot

LENGTH_BYTES = 4
"""Before each snapshot, which is JSON."""


class SnapshotPipe:
    """Sends whole snapshots, one at a time: while one is not taken, newer ones are dropped. So it holds one at most."""

    def __init__(self, sender: socket.socket) -> None:
        sender.setblocking(False)
        self._sender = sender
        self._left = memoryview(b"")

    def put(self, snapshot: Snapshot) -> bool:
        """Send as much as is taken at once. False if the other end is gone."""
        if not self._left:
            frame = msgspec.json.encode(snapshot)
            self._left = memoryview(len(frame).to_bytes(LENGTH_BYTES) + frame)
        try:
            while self._left:
                self._left = self._left[self._sender.send(self._left) :]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close this end, at which the other process ends."""
        self._sender.close()
