"""`remuda sweep`: many experiments from one grid."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.connecting import ConnectionPath, connected, connection_path
from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import DEFAULT_RUNS_DIR, AsJson, ResolvedRun, RunsDir, Sets
from remuda.cli.sweep_request import Asked, Place
from remuda.storage.existing_folder import Mode

if TYPE_CHECKING:
    from remuda.client.client import Client
    from remuda.storage.ownership import Ownership
    from remuda.sweeping.plan import PlannedRun
    from remuda.sweeping.record import RunRecord
    from remuda.sweeping.sweep import Executor, Task
    from remuda.worker.shutdown_guard import ShutdownGuard

EXAMPLE = "remuda sweep examples/sweeps/cartpole.yaml --on local --jobs 2"
GRACE_S = 900.0
"""Seconds after a first Ctrl-C in which runs save and evaluate a last checkpoint; longer than their own limits."""

GridPath = Annotated[
    Path,
    typer.Argument(
        metavar="GRID",
        help="A .yaml file with name, config, seeds, and grid or search.",
    ),
]
MODES: dict[Place, Mode] = {"herd": "parallel", "local": "serial"}
On = Annotated[
    Place | None,
    typer.Option(help="On the herd of a coordinator, or in local processes (default: the herd, if one is found)."),
]
Jobs = Annotated[int, typer.Option("-j", "--jobs", metavar="N", min=1, help="Runs at the same time; with --on local.")]
SweepDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The sweep's folder (default: its name, in --runs-dir).")
]
Datestamp = Annotated[bool, typer.Option("--datestamp", help="Start over in a folder whose name begins with the date.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything and list the runs; start nothing.")]
ForceAll = Annotated[bool, typer.Option("--force", help="Start every run over, also finished ones.")]


def sweep(
    grid: GridPath,
    on: On = None,
    jobs: Jobs = 1,
    sets: Sets = None,
    sweep_dir: SweepDir = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    datestamp: Datestamp = False,
    force: ForceAll = False,
    dry_run: DryRun = False,
    connection_file: ConnectionPath = None,
    as_json: AsJson = False,
) -> None:
    """Run every combination of the values in a grid with every seed, or the trials of a search, on a herd or here, and
    print the results.

    The same command continues an interrupted sweep: finished runs are kept, others continue. A run that fails does not
    stop the others. Ctrl-C saves and ends the runs under way; a second one ends everything at once.
    """
    from remuda.sweeping.grid import read_grid
    from remuda.sweeping.plan import plan

    read = read_grid(grid)
    folder = _folder(read.name, sweep_dir, runs_dir, datestamp=datestamp)
    if read.search is not None:
        from remuda.cli.search import run_search

        place = on or _place(folder, connection_file, runs_dir, jobs)
        asked = Asked(folder, place, jobs, tuple(sets or ()), runs_dir, connection_file, force, dry_run, as_json)
        run_search(read, asked, again=_again(folder, datestamp=datestamp))
        return
    runs = plan(read, folder, sets=sets or ())
    look = _look(folder, read.name, runs, on or _place(folder, connection_file, runs_dir, jobs), force=force)
    refuse_jobs_on_a_herd(look.place, jobs)
    check_runs(look.todo, look.place)
    _announce(look)
    if dry_run:
        print("\n".join(record.name for record in look.records))
        return
    records, interrupted = look.records, False
    if look.todo:
        with executor(look.folder, look.place, connection_file, runs_dir, jobs=jobs, force=force) as (runs_of, guard):
            records = _carry_out(look, runs_of, guard)
            interrupted = guard.ending
    _tell(folder, records, as_json=as_json, again=_again(folder, datestamp=datestamp) if interrupted else None)


def refuse_jobs_on_a_herd(place: Place, jobs: int) -> None:
    """Raise InputError."""
    if place == "herd" and jobs > 1:
        raise InputError("--jobs works with --on local only; a herd makes as many runs as it has workers for")


@dataclass(frozen=True)
class _Look:
    """All runs as far as they are known, and those still to be made."""

    folder: Path
    name: str
    place: Place
    records: Sequence[RunRecord]
    todo: Sequence[Task]


def _folder(name: str, sweep_dir: Path | None, runs_dir: Path, *, datestamp: bool) -> Path:
    if sweep_dir is not None and datestamp:
        raise InputError("give only one of --sweep-dir (the folder itself) and --datestamp (a new folder)")
    stamp = f"{datetime.now():%Y-%m-%d_%H-%M-%S}_" if datestamp else ""
    folder = Path(os.path.abspath(sweep_dir or runs_dir / f"{stamp}{name}"))
    if (folder / "config.json").exists():
        raise InputError(f"{folder} is a run folder: give the grid another name, or the sweep a --sweep-dir")
    return folder


def _place(folder: Path, connection_file: Path | None, runs_dir: Path, jobs: int) -> Place:
    """Where the sweep was begun. A new one runs on the herd if there is a coordinator, unless `jobs` is given."""
    from remuda.sweeping.record import SweepFileError, recorded_mode

    try:
        mode = recorded_mode(folder)
    except SweepFileError as error:
        raise InputError(str(error)) from error
    if mode is not None:
        return "local" if mode == "serial" else "herd"
    if connection_file is None and (jobs > 1 or not connection_path(None, runs_dir).exists()):
        return "local"
    return "herd"


def _look(folder: Path, name: str, runs: Sequence[PlannedRun], place: Place, *, force: bool) -> _Look:
    """Find out what is to be done; changes nothing."""
    from remuda.sweeping.record import SweepBook, SweepFileError
    from remuda.sweeping.sweep import tasks

    mode = MODES[place]
    try:
        known = SweepBook(folder, name=name, mode=mode).runs
    except SweepFileError as error:
        raise InputError(str(error)) from error
    return _Look(folder, name, place, *tasks(runs, known, mode, force=force))


def check_runs(todo: Sequence[Task], place: Place) -> None:
    """Check that all can run at this place: build each different environment once, and check that the algorithms can
    act in it."""
    from remuda.cli.launch import check_input

    checked: set[str] = set()
    for task in todo:
        config = task.run.loaded.config
        parts = config.model_dump(mode="json", include={"env", "policy", "policies"})
        kind = json.dumps([parts, config.learner.initialize_from, config.source_dir])
        if kind not in checked:
            checked.add(kind)
            check_input(ResolvedRun(task.run.loaded, task.run.run_dir, task.on_exists), mode=MODES[place])


def _announce(look: _Look) -> None:
    runs, todo = len(look.records), len(look.todo)
    variants = len({record.variant for record in look.records})
    resumed = sum(task.on_exists == "resume" for task in look.todo)
    where = "on the herd" if look.place == "herd" else "on this machine"
    print(
        f"{_counted(runs, 'run')} of {_counted(variants, 'variant')}; {runs - todo} finished, {resumed} to continue, "
        f"{todo - resumed} to begin, {where}; folder {look.folder}",
        file=sys.stderr,
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@contextmanager
def executor(
    folder: Path, place: Place, connection_file: Path | None, runs_dir: Path, *, jobs: int, force: bool
) -> Generator[tuple[Executor, ShutdownGuard]]:
    """Yield what makes the runs, and what reacts to Ctrl-C."""
    from remuda.sweeping.herd import HerdRuns
    from remuda.sweeping.local import LocalRuns
    from remuda.worker.shutdown_guard import ShutdownGuard

    with ShutdownGuard(grace_s=GRACE_S) as guard:
        if place == "herd":
            with connected(connection_file, runs_dir) as client:
                _require_answer(client, folder)
                yield HerdRuns(client, adopt=not force), guard
        else:
            with LocalRuns(folder, jobs=jobs) as local:
                guard.on_forced_exit(local.kill)
                yield local, guard


def _require_answer(client: Client, folder: Path) -> None:
    """Check before anything is written that the coordinator answers: a sweep begun on a herd cannot continue here.
    Raises RunFailedError."""
    from remuda.sweeping.record import recorded_mode
    from remuda.wire.conversation import UnreachableError

    try:
        client.status()
    except UnreachableError as error:
        here = "" if recorded_mode(folder) else "; --on local runs the sweep without a coordinator"
        raise RunFailedError(f"{error}{here}") from error


def _carry_out(look: _Look, runs_of: Executor, guard: ShutdownGuard) -> list[RunRecord]:
    from remuda.cli.sweep_view import open_view
    from remuda.sweeping.record import SweepBook
    from remuda.sweeping.sweep import carry_out

    owned = own(look.folder)
    latest = {record.name: record for record in look.records}
    view = open_view(look.records)

    def show(news: Sequence[RunRecord]) -> None:
        latest.update((record.name, record) for record in news)
        view.update(news)

    try:
        book = SweepBook(look.folder, name=look.name, mode=MODES[look.place])
        book.write(look.records)
        carry_out(look.todo, runs_of, book, ending=lambda: guard.ending, on_change=show)
        book.write(latest.values())
    finally:
        view.close()
        owned.release()
    return list(latest.values())


def own(folder: Path) -> Ownership:
    """Make the sweep's folder, and own it until released. Raises InputError where another sweep does."""
    from remuda.storage.ownership import FolderOwnedError, Ownership

    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Ownership(folder / ".sweep")
    except FolderOwnedError as error:
        raise InputError(f"another sweep is under way: {error}") from error


def _again(folder: Path, *, datestamp: bool) -> str:
    """The command that continues an interrupted sweep: the same one, in the same folder, which is not started over."""
    words = [word for word in sys.argv[1:] if word != "--force"]
    if datestamp:
        words = [word for word in words if word != "--datestamp"] + ["--sweep-dir", os.path.relpath(folder)]
    return shlex.join(["remuda", *words])


def _tell(folder: Path, records: Sequence[RunRecord], *, as_json: bool, again: str | None) -> None:
    from remuda.sweeping.summary import by_variant, runs_table, variants_table
    from remuda.training.next_command import plot_command

    if as_json:
        print(_json(folder, records))
    else:
        print(f"{runs_table(records)}\n\n{variants_table(by_variant(records))}\n")
        print("Type next:")
        if again is not None:
            print(f"  {again}")
        print(f"  {plot_command(folder)}")
    failed = [record for record in records if record.state == "failed"]
    if failed:
        told = "\n".join(f"  {record.name}: {record.reason}" for record in failed)
        raise RunFailedError(f"{len(failed)} of {len(records)} runs failed:\n{told}")


def _json(folder: Path, records: Sequence[RunRecord]) -> str:
    import msgspec

    from remuda.sweeping.summary import by_variant

    content = {"folder": str(folder), "runs": records, "variants": by_variant(records)}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
