"""Connection of a command to its coordinator."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from remuda.client.client import Client

ConnectionPath = Annotated[
    Path | None,
    typer.Option(
        "--connection-file",
        metavar="FILE",
        envvar="REMUDA_CONNECTION_FILE",
        help="The coordinator's connection file (default: connection.json in --runs-dir).",
    ),
]


LOOK_S = 5.0
"""Longest wait for the connection file of a starting coordinator."""
WAIT_S = 30.0
"""The same for commands that people type right after `remuda coordinator`."""
SAID_AFTER_S = 1.0
"""Time after which a command prints a line about the wait."""


def connection_path(given: Path | None, runs_dir: Path) -> Path:
    """Return the absolute path of the connection file: `given`, or the file in the runs folder."""
    return (given or runs_dir / "connection.json").absolute()


@contextmanager
def connected(given: Path | None, runs_dir: Path, *, wait_s: float | None = None) -> Generator[Client, None, None]:
    """Yield a client of the coordinator; waits as `awaited`."""
    from remuda.client.client import Client

    with Client(awaited(given, runs_dir, wait_s)) as client:
        yield client


def awaited(given: Path | None, runs_dir: Path, wait_s: float | None = None) -> Path:
    """Return the path of the connection file, once the file exists or the time is over.

    Waits `wait_s` for a starting coordinator. The default is LOOK_S if the folder of the file exists, else 0.
    """
    path = connection_path(given, runs_dir)
    if wait_s is None:
        wait_s = LOOK_S if path.parent.is_dir() else 0.0
    begun_s, said = time.monotonic(), False
    while not path.exists() and (waited_s := time.monotonic() - begun_s) < wait_s:
        if waited_s > SAID_AFTER_S and not said:
            said = True
            print(f"waiting for a coordinator, at most {wait_s:g} s: {path} does not exist yet", file=sys.stderr)
        time.sleep(0.02)
    return path
