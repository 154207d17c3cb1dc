"""Commands that requests wait for. The end of the page breaks them off, so that none of them outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path


class BrokenOffError(Exception):
    """The page has ended before the command had; the text is for whoever waits for it."""


class Commands:
    """Runs commands to their ends, each as a process group of its own. For any thread; `close` it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._going_on: set[subprocess.Popen[str]] = set()
        self._closed = threading.Event()

    def run(self, command: Sequence[str], *, folder: Path, within_s: float) -> subprocess.CompletedProcess[str]:
        """Run it in a folder, and return its exit code and all that it has printed. One that takes longer than
        `within_s` is killed.

        Raises BrokenOffError once this is closed, subprocess.TimeoutExpired, and OSError if it cannot be started."""
        with self._lock:
            if self._closed.is_set():
                raise BrokenOffError("the page's server is ending: nothing was begun")
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._going_on.add(process)
        try:
            with process:
                try:
                    output, errors = process.communicate(timeout=within_s)
                except BaseException:
                    kill_group(process)
                    raise
        finally:
            with self._lock:
                self._going_on.discard(process)
        if self._closed.is_set() and process.returncode == -signal.SIGKILL:
            raise BrokenOffError("the page's server has ended before the command had")
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def close(self) -> None:
        """Kill those that go on, and begin no other. May be called again."""
        with self._lock:
            self._closed.set()
            for process in self._going_on:
                kill_group(process)


def kill_group(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, with all that it has started there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
