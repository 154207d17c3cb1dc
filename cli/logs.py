"""`remuda logs`: an experiment's logs, from wherever the coordinator can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.connecting import ConnectionPath, connected
from remuda.cli.options import DEFAULT_RUNS_DIR, RunsDir

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    typer.Option("-n", metavar="LINES", min=0, max=100_000, help="The last so many (default: all; with -f 20)."),
]


def logs(
    experiment: Which,
    source: Source = "commander",
    follow: Follow = False,
    lines: Lines = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
) -> None:
    """Print an experiment's log; a source of several files has each line say whose it is."""
    last_lines = FOLLOWED_LINES if follow and lines is None else lines
    with connected(connection_file, runs_dir) as client:
        try:
            show(client.logs(experiment, source, last_lines=last_lines, follow=follow))
        except (KeyboardInterrupt, BrokenPipeError):
            return  # the reader has had enough


def show(pieces: Iterable[LogPiece]) -> None:
    """Print each piece as it comes."""
    for piece in pieces:
        head = f"[{piece.label}] " if piece.label.count(" ") else ""
        text = piece.text if not head else "".join(head + line for line in piece.text.splitlines(keepends=True))
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
