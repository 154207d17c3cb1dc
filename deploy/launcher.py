"""The interface of launchers, which start the processes of a run: on this machine, or through an engine elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol


@dataclass(frozen=True)
class WorkerCounts:
    """How many workers of each role to start."""

    collectors: int
    evaluators: int
    learners: int = 1
    reanalyzers: int = 0


class LaunchError(Exception):
    """The coordinator or its workers could not be started, or died; the message holds their last lines of output."""


class Launcher(Protocol):
    """Starts a coordinator and workers, and ends both whatever happens."""

    @property
    def connection_file(self) -> Path:
        """The coordinator's connection file."""
        ...

    def start(self, workers: WorkerCounts) -> None:
        """Start everything; returns once the coordinator can be reached. Raises LaunchError."""
        ...

    def check(self) -> None:
        """Raise LaunchError if something that should be running is not."""
        ...

    def wait_for_coordinator(self, deadline_s: float) -> bool:
        """Wait until the coordinator has ended by itself (after a shutdown); False when the deadline passes first."""
        ...

    def kill(self) -> None:
        """End everything at once, just before the calling process ends."""
        ...

    def stop(self) -> None:
        """End everything that was started and wait until it is gone. Safe to call twice."""
        ...

    def __enter__(self) -> Launcher: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        ...
