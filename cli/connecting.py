"""How a verb finds its coordinator, and what it says when that goes wrong."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.errors import CommandRefusedError, InputError, RunFailedError

if TYPE_CHECKING:
    from remuda.client.client import Client

ConnectionPath = Annotated[
    Path | None,
    typer.Option(
        "--connection-file",
        metavar="FILE",
        envvar="REMUDA_CONNECTION_FILE",
        help="How to find the coordinator (default: connection.json in --runs-dir).",
    ),
]


LOOK_S = 5.0
"""How long a verb waits for the connection file of a coordinator that is being started."""
SAID_AFTER_S = 1.0


def connection_path(given: Path | None, runs_dir: Path) -> Path:
    """The connection file, absolute: as given, else the one of the runs folder."""
    return (given or runs_dir / "connection.json").absolute()


@contextmanager
def connected(given: Path | None, runs_dir: Path, *, wait_s: float | None = None) -> Generator[Client, None, None]:
    """A client of the coordinator. What goes wrong in the block leads to the exit code that says so.

    A coordinator that is only being started has `wait_s` to write its connection file; by default LOOK_S if the folder
    of that file is there, else no time."""
    from remuda.client.client import Client
    from remuda.wire import conversation
    from remuda.wire.connection_file import ConnectionFileError

    path = connection_path(given, runs_dir)
    wait_s = (LOOK_S if path.parent.is_dir() else 0.0) if wait_s is None else wait_s
    try:
        _wait_for(path, wait_s)
        with Client(path) as client:
            yield client
    except ConnectionFileError as error:
        raise InputError(str(error)) from error
    except conversation.RefusedError as error:
        raise (CommandRefusedError if error.code == "protocol" else InputError)(str(error)) from error
    except conversation.UnreachableError as error:
        raise RunFailedError(str(error)) from error


def _wait_for(path: Path, wait_s: float) -> None:
    """Until the file is there or the time is over."""
    begun_s, said = time.monotonic(), False
    while not path.exists() and (waited_s := time.monotonic() - begun_s) < wait_s:
        if waited_s > SAID_AFTER_S and not said:
            said = True
            print(f"waits for a coordinator: {path} is not there (for at most {wait_s:g} s)", file=sys.stderr)
        time.sleep(0.02)
