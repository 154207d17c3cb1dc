"""Processes that are run to their end, or to their deadline with all that they have started."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import psutil

from remuda.wire.child_end import ended


@dataclass(frozen=True)
class Finished:
    """What a process left behind."""

    status: int | None
    """None where it had to be killed at its deadline."""
    output: str
    errors: str
    """Empty where it wrote to our own stderr."""


def run(
    command: Sequence[str],
    *,
    deadline_s: float,
    environment: Mapping[str, str] | None = None,
    show_errors: bool = False,
) -> Finished:
    """Run `command` and return its output; at the deadline, or if we are interrupted, kill it and its descendants.

    Output goes to files and not to pipes: a process left over by a peer would hold a pipe open for good. With
    `show_errors` its stderr is ours. Raises OSError when the command cannot be started.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=output, stderr=None if show_errors else errors, stdin=subprocess.DEVNULL, env=environment
        )
        status: int | None = None
        try:
            if ended(process, deadline_s):
                status = process.returncode
        finally:
            _kill_with_descendants(process)
        return Finished(status, _text(output), _text(errors))


def _kill_with_descendants(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    for member in family:
        if member.is_running():  # False where the id belongs to somebody else by now
            member.kill()
    psutil.wait_procs(family, timeout=10)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
