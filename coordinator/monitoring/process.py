"""The coordinator's side of the process for health and metrics: start, snapshots and end."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from remuda.coordinator.monitoring.snapshot import Snapshot
from remuda.wire.child_end import end_within

LENGTH_BYTES = 4
"""Length field before each JSON snapshot."""
INTERVAL_S = 1.0
"""Time between two snapshots."""
RESTART_S = 10.0
"""Minimum time between two starts of a dying process."""
END_S = 5.0


class SnapshotPipe:
    """Sends whole snapshots without waiting; drops a snapshot while an earlier snapshot waits.
    Holds a single snapshot."""

    def __init__(self, sender: socket.socket) -> None:
        sender.setblocking(False)
        self._sender = sender
        self._left = memoryview(b"")

    def put(self, snapshot: Snapshot) -> bool:
        """Send the available part. Returns False if the receiving end is gone."""
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
        """Close the pipe, to end the receiving process."""
        self._sender.close()


class MonitoringProcess:
    """Serves at `listener` until closed. Only `close` waits for the process."""

    def __init__(
        self,
        listener: socket.socket,
        say: Callable[[str], None],
    ) -> None:
        """`say` gets a line if the process dies; a new process is then started. Owns the listener. Raises OSError."""
        self._listener = listener
        self._say = say
        self._due_s = time.monotonic()
        self._start()

    def tick(self, measure: Callable[[], Snapshot]) -> None:
        """Send the result of `measure` every second; called by every turn of the loop with time left."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        if self._process.poll() is None:
            self._pipe.put(measure())
        elif now_s >= self._started_s + RESTART_S:
            self._say(f"what serves /health and /metrics ended with {self._process.returncode}; it is started again")
            self._pipe.close()
            self._start()

    def close(self) -> None:
        """End the process, and wait for its end."""
        self._pipe.close()
        self._listener.close()
        end_within(self._process, END_S)

    def _start(self) -> None:
        self._started_s = time.monotonic()
        ours, theirs = socket.socketpair()
        self._pipe = SnapshotPipe(ours)
        descriptors = (self._listener.fileno(), theirs.fileno())
        arguments = ["--listener", str(descriptors[0]), "--snapshots", str(descriptors[1])]
        with contextlib.closing(theirs):
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "remuda.coordinator.monitoring", *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
            )
