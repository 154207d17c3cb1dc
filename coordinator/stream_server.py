"""The coordinator's side of the process that streams files to workers without access to the runs folder."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from remuda.wire.child_end import end_within
from remuda.wire.door import added
from remuda.wire.messages import RefusalCounts

BACKLOG_CONNECTIONS = 1_024
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 32.0
"""Minimum time between two starts of a dying process; doubled with every death soon after a start."""
STEADY_S = 60.0
"""Lifetime after which the next pause is the first again."""
END_S = 5.0
KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""Settings for glibc, which otherwise returns the memory of nearly every message to the system and takes new pages: a
third of the cost of decrypting the message. This limits the memory kept per thread."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens for streams at this host, at [::] for IPv4, too; `port` 0: any free port. Raises
    OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    listener = socket.create_server(
        (host.strip("[]"), port), family=family, backlog=BACKLOG_CONNECTIONS, dualstack_ipv6=both
    )
    listener.setblocking(False)
    return listener


class StreamServerProcess:
    """Starts the process at the first connection, and again if it dies. The coordinator keeps the listener: the port
    stays, and the next process serves connections made meanwhile. Only `close` waits."""

    def __init__(
        self,
        listener: socket.socket,
        runs_dir: Path,
        keys_dir: Path,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Owns the listener. `say` gets a line if the process dies."""
        self._listener = listener
        self._runs_dir, self._keys_dir = runs_dir, keys_dir
        self._say = say
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._told = _Told()
        self._started_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._knocks = select.poll()
        self._knocks.register(listener, select.POLLIN)

    @property
    def port(self) -> int:
        """Port of the streams."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def refusals(self) -> RefusalCounts:
        """Refusals by all processes until now."""
        return self._told.counts

    def tick(self) -> None:
        """Start the process if needed; called by every turn of the loop with time left."""
        now_s = self._clock()
        self._told.look()
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._note_death(self._process.returncode, now_s)
        if now_s >= self._started_s + self._pause_s and self._knocks.poll(0):
            self._start(now_s)

    def close(self) -> None:
        """End the process, and wait for its end. May be called again."""
        self._listener.close()
        self._break_lifeline()
        if self._process is None:
            return
        end_within(self._process, END_S)
        self._process = None
        self._told.end()

    def _note_death(self, exit_code: int, now_s: float) -> None:
        self._process = None
        self._told.end()
        self._break_lifeline()
        steady = now_s - self._started_s > STEADY_S
        self._pause_s = FIRST_PAUSE_S if steady else min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._say(f"the stream server ended with {exit_code}; it is started again when a worker asks for it")

    def _start(self, now_s: float) -> None:
        self._started_s = now_s
        try:
            reading_end, self._lifeline = os.pipe()
        except OSError as error:  # no descriptor
            self._say(f"the stream server cannot be started: {error}")
            return
        try:
            refusals = self._told.begin()
        except OSError as error:
            self._say(f"the stream server cannot be started: {error}")
            os.close(reading_end)
            self._break_lifeline()
            return
        host, port = self._listener.getsockname()[:2]
        address = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
        arguments = ("--runs-dir", self._runs_dir, "--keys-dir", self._keys_dir, "--address", address)
        descriptors = ("--listener", self._listener.fileno(), "--lifeline", reading_end, "--refusals", refusals)
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "remuda.worker.stores.server.service",
                    *map(str, (*arguments, *descriptors)),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(self._listener.fileno(), reading_end, refusals),
                env={**KEEPS_MEMORY, **os.environ},
            )
        except OSError as error:  # no memory, or no process number
            self._say(f"the stream server cannot be started: {error}")
            self._break_lifeline()
            self._told.end()
        finally:
            os.close(reading_end)
            os.close(refusals)

    def _break_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


class _Told:
    """Reads the refusal counts of the processes, in sequence, from a pipe per process."""

    def __init__(self) -> None:
        self._of_former = RefusalCounts()
        self._newest = RefusalCounts()
        self._begun = b""
        self._pipe = -1

    @property
    def counts(self) -> RefusalCounts:
        return added(self._of_former, self._newest)

    def begin(self) -> int:
        """Return the writing end for a new process; the caller closes its own copy."""
        self._pipe, writing_end = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(writing_end, False)
        return writing_end

    def look(self) -> None:
        """Read the available data."""
        if self._pipe < 0:
            return
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 65_536):
                *lines, self._begun = (self._begun + data).split(b"\n")
                if lines:
                    self._newest = msgspec.json.decode(lines[-1], type=RefusalCounts)

    def end(self) -> None:
        """The process has ended."""
        if self._pipe < 0:
            return
        self.look()
        os.close(self._pipe)
        self._of_former, self._newest, self._begun, self._pipe = self.counts, RefusalCounts(), b"", -1
