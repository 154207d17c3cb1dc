"""`remuda logs`: the logs of an experiment, through the coordinator or from the run folder."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.connecting import ConnectionPath, connected, connection_path
from remuda.cli.errors import InputError
from remuda.cli.options import DEFAULT_RUNS_DIR, RunsDir

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.storage.run_folder import RunFolder
    from remuda.wire.messages import LogPiece

EXAMPLE = "remuda logs cartpole_dqn -f"
FOLLOWED_LINES = 20

Which = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Id, beginning of an id, or name.")]
Source = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="commander, commander_collector, commander_evaluator, coordinator, learner, buffer, collector, evaluator, "
        "or the beginning of a worker's UUID.",
    ),
]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on until the experiment is over.")]
Lines = Annotated[
    int | None,
    typer.Option(
        "-n", metavar="LINES", min=0, max=100_000, help="Only the last LINES lines (default: all; with -f 20)."
    ),
]


def logs(
    experiment: Which,
    source: Source = "commander",
    follow: Follow = False,
    lines: Lines = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
) -> None:
    """Print the log of an experiment. For a source with several files, every line names its worker or its policy.

    Without a coordinator, for example after `remuda shutdown`, reads the run folders in --runs-dir.
    """
    last_lines = FOLLOWED_LINES if follow and lines is None else lines
    if not connection_path(connection_file, runs_dir).exists() and (run := _stored_run(runs_dir, experiment, follow)):
        _show_stored(run, source, last_lines)
        return
    with connected(connection_file, runs_dir) as client:
        try:
            show(client.logs(experiment, source, last_lines=last_lines, follow=follow))
        except (KeyboardInterrupt, BrokenPipeError):
            return  # the user, or the program that reads our output, ends it


def _stored_run(runs_dir: Path, experiment: str, follow: bool) -> RunFolder | None:
    """Return the run folder to read; None for a run to follow that is still running. Raises InputError."""
    from remuda.client.stored_logs import NoSuchRunError, find_run

    try:
        run = find_run(runs_dir, experiment)
    except NoSuchRunError as error:
        if not runs_dir.is_dir():
            return None
        raise InputError(f"no coordinator is running, and {error}") from error
    return None if follow and run.owner.exists() else run


def _show_stored(run: RunFolder, source: str, last_lines: int | None) -> None:
    from remuda.client.stored_logs import stored_logs
    from remuda.logbook.tail import NoSuchSourceError

    print(f"no coordinator is running: reading from {run.root}", file=sys.stderr, flush=True)
    try:
        pieces = stored_logs(run, source, last_lines)
        first = next(pieces, None)
        if first is None:
            raise InputError(f"{run.log} has no log of source {source}{_serial_hint(run)}")
        show(chain([first], pieces))
    except (KeyboardInterrupt, BrokenPipeError):
        return  # the user, or the program that reads our output, ends it
    except (NoSuchSourceError, OSError) as error:
        raise InputError(str(error)) from error


def _serial_hint(run: RunFolder) -> str:
    serial = run.serial_evaluator_log.exists()
    return ": `remuda train` has no commander log; decisions are in --source evaluator" if serial else ""


def show(pieces: Iterable[LogPiece]) -> None:
    """Print pieces as they come."""
    for piece in pieces:
        head = f"[{piece.label}] " if " " in piece.label or "/" in piece.label else ""
        text = piece.text if not head else "".join(head + line for line in piece.text.splitlines(keepends=True))
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
