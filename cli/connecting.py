"""How a verb finds its coordinator, and what it says when that goes wrong."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.errors import InputError, RefusedError, RunFailedError

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


def connection_path(given: Path | None, runs_dir: Path) -> Path:
    """The connection file, absolute: as given, else the one of the runs folder."""
    return (given or runs_dir / "connection.json").absolute()


@contextmanager
def connected(given: Path | None, runs_dir: Path) -> Generator[Client, None, None]:
    """A client of the coordinator. What goes wrong in the block leads to the exit code that says so."""
    from remuda.client.client import Client
    from remuda.wire import conversation
    from remuda.wire.connection_file import ConnectionFileError

    try:
        with Client(connection_path(given, runs_dir)) as client:
            yield client
    except ConnectionFileError as error:
        raise InputError(str(error)) from error
    except conversation.RefusedError as error:
        raise (RefusedError if error.code == "protocol" else InputError)(str(error)) from error
    except conversation.UnreachableError as error:
        raise RunFailedError(str(error)) from error
