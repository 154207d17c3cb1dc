"""`remuda submit`, `stop`, `priority`, `shutdown` and `logs`: requests to a running coordinator."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.connecting import WAIT_S, ConnectionPath, connected, connection_path
from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import (
    DEFAULT_RUNS_DIR,
    Name,
    RunOptions,
    RunsDir,
    named,
    on_disk,
    print_unused,
    with_run_options,
)
from remuda.cli.output import print_end, reserved_stdout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from remuda.client.client import Client
    from remuda.config.schema import ExperimentConfig
    from remuda.coordinator.disk.runs_folder import KnownRun
    from remuda.storage.run_folder import RunFolder
    from remuda.wire.messages import ExperimentStatus, LogPiece, LogPosition

SUBMIT_EXAMPLE = "remuda submit examples/cartpole_dqn.yaml --set seed=3 --follow"
STOP_EXAMPLE = "remuda stop cartpole_dqn"
PRIORITY_EXAMPLE = "remuda priority cartpole_dqn 5"
SHUTDOWN_EXAMPLE = "remuda shutdown"

Priority = Annotated[int, typer.Option(metavar="N", help="Experiments with a higher priority get workers first.")]
Follow = Annotated[
    bool, typer.Option("--follow", help="Show progress until the run is over; Ctrl-C leaves it running.")
]
Which = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Id, beginning of an id, or name.")]
Now = Annotated[bool, typer.Option("--now", help="Skip the final evaluation.")]
NewPriority = Annotated[int, typer.Argument(metavar="N", help="The new priority; write one below 0 behind --: -- -1.")]


@with_run_options
def submit(
    run: RunOptions,
    name: Name = None,
    priority: Priority = 0,
    follow: Follow = False,
    connection_file: ConnectionPath = None,
) -> None:
    """Submit a run to a coordinator; prints only the id of the experiment on standard output.

    The run folder is in the coordinator's runs folder; --run-dir names another folder inside.
    """
    from remuda.client.checking import check_run, with_agents

    run = replace(run, runs_dir=on_disk(run.runs_dir), run_dir=None if run.run_dir is None else on_disk(run.run_dir))
    resolved = run.resolved(*named(name), opens=False)
    resolved.loaded.require_numbers("the workers may be on other machines")
    with reserved_stdout():  # the environment is built
        check_run(resolved.loaded, resolved.run_dir, resolved.on_exists)
    print_unused(resolved)
    loaded = resolved.loaded
    with connected(connection_file, run.runs_dir, wait_s=WAIT_S) as client:
        submitted = client.submit(
            with_agents(loaded.config),
            run_dir=resolved.run_dir if run.run_dir is not None else (run.run_id or loaded.config.name),
            on_exists=resolved.on_exists,
            priority=priority,
            provenance=loaded.provenance,
        )
        print(submitted.experiment, flush=True)
        print(f"run folder: {submitted.run_dir}", file=sys.stderr)
        if follow:
            options = ["--connection-file", str(connection_file)] if connection_file is not None else []
            if run.runs_dir != DEFAULT_RUNS_DIR:
                options += ["--runs-dir", str(run.runs_dir)]
            follow_to_the_end(client, submitted.experiment, loaded.config, options)


def stop(
    experiment: Which, now: Now = False, runs_dir: RunsDir = DEFAULT_RUNS_DIR, connection_file: ConnectionPath = None
) -> None:
    """Stop an experiment cleanly: the last checkpoint is saved and evaluated."""
    with connected(connection_file, runs_dir) as client:
        client.stop(experiment, now=now)


def priority(
    experiment: Which,
    number: NewPriority,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
) -> None:
    """Change the priority of an unfinished experiment; experiments with a higher priority get workers first."""
    with connected(connection_file, runs_dir) as client:
        client.prioritize(experiment, number)


def shutdown(runs_dir: RunsDir = DEFAULT_RUNS_DIR, connection_file: ConnectionPath = None) -> None:
    """Stop every experiment cleanly, send the workers home and end the coordinator."""
    with connected(connection_file, runs_dir) as client:
        client.shutdown()


def follow_to_the_end(client: Client, experiment: str, config: ExperimentConfig, options: Sequence[str]) -> None:
    """Show progress to the end, and wait for a restarted coordinator as `logs -f` does; `options` find the coordinator
    again."""
    from remuda.client.client import RETURN_DEADLINE_S
    from remuda.client.progress import shown_progress
    from remuda.wire.conversation import RefusedError
    from remuda.wire.patience import Patience

    patience = Patience(RETURN_DEADLINE_S, partial(print, file=sys.stderr, flush=True))
    newest: list[ExperimentStatus] = []
    try:
        with shown_progress(config) as show:

            def keep(status: ExperimentStatus) -> None:
                newest[:] = [status]
                show(status)

            status = client.follow(experiment, keep, patience=patience)
    except KeyboardInterrupt:
        stop = shlex.join(["remuda", "stop", experiment[:8], *options])
        print(f"no longer followed, still running. To stop the run, type: {stop}", file=sys.stderr)
        return
    except RefusedError as error:
        if error.code != "unknown" or not newest:
            raise
        status = _stored_end(newest[0])
    print_end(status, config, "submit", options=options, output=sys.stderr)


def _stored_end(newest: ExperimentStatus) -> ExperimentStatus:
    """Return the last status of a run that the coordinator has forgotten. Raises RunFailedError."""
    from remuda.client.stored_run import last_status

    found = last_status(newest)
    if found is None:
        raise RunFailedError(
            f"the coordinator does not know {newest.name} ({newest.id[:8]}) any more, and the run folder "
            f"{newest.run_dir} does not tell the end"
        )
    return found


LOGS_EXAMPLE = "remuda logs cartpole_dqn -f"
FOLLOWED_LINES = 20

Source = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="commander, commander_collector, commander_evaluator, coordinator, learner, buffer, collector, evaluator, "
        "or the beginning of a worker's UUID.",
    ),
]
FollowLog = Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run is over.")]
Lines = Annotated[
    int | None,
    typer.Option(
        "-n", metavar="LINES", min=0, max=100_000, help="Only the last LINES lines (default: all; with -f 20)."
    ),
]


def logs(
    experiment: Which,
    source: Source = "commander",
    follow: FollowLog = False,
    lines: Lines = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
) -> None:
    """Print the log of a run. For a source with several files, every line names its worker or its policy.

    Without a coordinator, for example after `remuda shutdown`, and for a run that the coordinator does not know, reads
    the run folders in --runs-dir.
    """
    from remuda.wire.conversation import RefusedError

    last_lines = FOLLOWED_LINES if follow and lines is None else lines
    if not connection_path(connection_file, runs_dir).exists() and (run := _stored_run(runs_dir, experiment, follow)):
        print(f"no coordinator is running: reading from {run.root}", file=sys.stderr, flush=True)
        _show_stored(run, source, last_lines)
        return
    shown: dict[str, LogPosition] = {}
    with connected(connection_file, runs_dir) as client, suppress(KeyboardInterrupt):  # the user ends it
        try:
            show(client.logs(experiment, source, last_lines=last_lines, follow=follow), shown)
        except RefusedError as error:
            forgotten = _forgotten_run(runs_dir, experiment, follow=follow) if error.code == "unknown" else None
            if forgotten is None:
                raise
            text = f"the coordinator does not know this run: reading from {forgotten.root}"
            print(text, file=sys.stderr, flush=True)
            _show_stored(forgotten, source, last_lines, shown)


class NoSuchRunError(Exception):
    """The name fits no run or several runs; the text lists the runs."""


def find_run(runs_dir: Path, experiment: str) -> RunFolder:
    """Find a run by its id, the beginning of its id, its name or its folder's name; among runs with the same name the
    newest. Raises NoSuchRunError."""
    from remuda.coordinator.disk.runs_folder import known_runs
    from remuda.storage.run_folder import RunFolder

    known = known_runs(runs_dir)
    named = [run.run_dir for run in known if experiment in (run.name, run.run_dir.name)]
    for run_dir in (*named, runs_dir / experiment):
        if experiment and RunFolder(run_dir).config_json.is_file():
            return RunFolder(run_dir)
    return RunFolder(_by_id(runs_dir, known, experiment))


def stored_logs(
    run: RunFolder, source: str, last_lines: int | None, shown: Mapping[str, LogPosition] = MappingProxyType({})
) -> Iterator[LogPiece]:
    """Yield the logs of a source, or the last lines of every file, and nothing before the positions `shown` (by file).
    Raises NoSuchSourceError, InputError."""
    from remuda.logbook import tail
    from remuda.wire.messages import LogPiece

    try:
        for found in tail.find(run.log, source):
            position = shown.get(found.file) or tail.begin(run.log, found.file, None if shown else last_lines)
            while (piece := tail.read(run.log, position, to_the_end=True)).text:
                position = piece.position
                yield LogPiece(position, tail.label(found.file), piece.text)
    except OSError as error:
        raise InputError(str(error)) from error


def _by_id(runs_dir: Path, known: list[KnownRun], experiment: str) -> Path:
    found = [run for run in known if experiment and run.experiment.startswith(experiment)]
    if len(found) == 1:
        return found[0].run_dir
    if found:
        ids = ", ".join(run.experiment for run in found)
        raise NoSuchRunError(f"{experiment!r} fits several experiments: {ids}; give more of the id")
    folders = {path.parent.name: "" for path in sorted(runs_dir.glob("*/config.json"))}
    names = ", ".join(folders | {run.run_dir.name: f" ({run.experiment[:8]})" for run in known}) or "none"
    raise NoSuchRunError(f"{runs_dir} has no run called {experiment!r}; there are: {names}")


def _stored_run(runs_dir: Path, experiment: str, follow: bool) -> RunFolder | None:
    """Return the run folder to read; None for a run to follow that is still running. Raises InputError."""
    try:
        run = find_run(runs_dir, experiment)
    except NoSuchRunError as error:
        if not runs_dir.is_dir():
            return None
        raise InputError(f"no coordinator is running, and {error}") from error
    return None if follow and run.owner.exists() else run


def _forgotten_run(runs_dir: Path, experiment: str, *, follow: bool) -> RunFolder | None:
    """Return the folder of a run that the coordinator does not know; None for a missing run, and for a run to follow
    that is still running."""
    with suppress(NoSuchRunError):
        run = find_run(runs_dir, experiment)
        return None if follow and run.owner.exists() else run
    return None


def _show_stored(
    run: RunFolder, source: str, last_lines: int | None, shown: Mapping[str, LogPosition] = MappingProxyType({})
) -> None:
    with suppress(KeyboardInterrupt):  # the user ends it
        pieces = stored_logs(run, source, last_lines, shown)
        first = next(pieces, None)
        if first is not None:
            show(chain([first], pieces))
        elif not shown:
            raise InputError(f"{run.log} has no log of source {source}{_serial_hint(run)}")


def _serial_hint(run: RunFolder) -> str:
    serial = run.serial_evaluator_log.exists()
    return ": `remuda train` has no commander log; decisions are in --source evaluator" if serial else ""


def show(pieces: Iterable[LogPiece], shown: dict[str, LogPosition] | None = None) -> None:
    """Print pieces as they come; `shown` gets the last position of each file."""
    for piece in pieces:
        if shown is not None:
            shown[piece.position.file] = piece.position
        head = f"[{piece.label}] " if " " in piece.label or "/" in piece.label else ""
        text = piece.text if not head else "".join(head + line for line in piece.text.splitlines(keepends=True))
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
