"""A real coordinator and links to it, for figures that play some of the workers themselves."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from remuda.wire.connection_file import wait_for
from remuda.wire.messages import PROTOCOL_VERSION, Assign, Ready, Register, Role
from remuda.worker.link import Link
from remuda.worker.process import ONE_THREAD

DEADLINE_S = 60.0


def python(module: str, *arguments: str, keys: bool = True) -> list[str]:
    """The command that runs a module, with keys or, for comparison, without."""
    open_lines = () if keys else ("remuda.benchmarks.open_lines",)
    return [sys.executable, "-P", "-m", *open_lines, module, *arguments]


@contextmanager
def coordinator(folder: Path, *, keys: bool = True) -> Generator[Path]:
    """One with its runs below `folder`; yields its connection file. Without `keys` it lets in everybody."""
    connection_file = folder / "connection.json"
    arguments = ["--connection-file", str(connection_file), "--runs-dir", str(folder)]
    with (folder / "coordinator.log").open("wb") as output:
        process = subprocess.Popen(
            python("remuda.coordinator", *arguments, keys=keys),
            env={**ONE_THREAD, **os.environ},
            stderr=output,
        )
        try:
            wait_for(connection_file, deadline_s=DEADLINE_S)
            yield connection_file
        finally:
            process.kill()
            process.wait()


def join(connection_file: Path, role: Role, uuid: str | None = None) -> Link:
    """Register as a new worker, of this UUID where somebody has to know it."""
    host = platform.node()
    register = Register(uuid or str(uuid4()), 1, role, host, os.getpid(), PROTOCOL_VERSION, "benchmark")
    link = Link(wait_for(connection_file, deadline_s=DEADLINE_S), register)
    link.start(DEADLINE_S)
    return link


def take_lease(link: Link) -> Assign:
    """Wait for one; `Ready` is the caller's to say."""
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        message = link.receive(1.0)
        if isinstance(message, Assign):
            link.begin_lease(message.lease)
            return message
    raise TimeoutError("the worker was given no lease")


def say_ready(link: Link, assign: Assign) -> None:
    """The lease's work can start."""
    link.send(Ready(assign.lease))
