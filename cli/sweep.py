"""`remuda sweep`: many experiments from one grid."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.connecting import ConnectionPath, connection_path
from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import DEFAULT_RUNS_DIR, AsJson, RunsDir, Sets
from remuda.cli.sweep_runs import (
    MODES,
    SearchOptions,
    SweepTarget,
    check_runs,
    executor,
    own_folder,
    refuse_jobs_on_a_herd,
)

if TYPE_CHECKING:
    from remuda.client.sweeps.plan import PlannedRun
    from remuda.client.sweeps.record import RunRecord
    from remuda.client.sweeps.sweep import Executor, Task
    from remuda.worker.shutdown_guard import ShutdownGuard

EXAMPLE = "remuda sweep examples/sweeps/cartpole.yaml --on local --jobs 2"

GridPath = Annotated[
    Path,
    typer.Argument(
        metavar="GRID",
        help="A .yaml file with name, config, seeds, and grid or search.",
    ),
]
On = Annotated[
    SweepTarget | None,
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
    """Run every combination of the values in a grid with every seed, or the trials of a search, with a coordinator's
    workers or here, and print the results.

    The same command continues an interrupted sweep: finished runs are kept, and the rest continues. A failed run does
    not stop the sweep. Ctrl-C saves and ends running runs; a second Ctrl-C ends everything at once.
    """
    from remuda.client.sweeps.grid import read_grid
    from remuda.client.sweeps.plan import plan

    read = read_grid(grid)
    folder = _folder(read.name, sweep_dir, runs_dir, datestamp=datestamp)
    if read.search is not None:
        from remuda.cli.sweep_runs import run_search

        target = on or _target(folder, connection_file, runs_dir, jobs)
        options = SearchOptions(
            folder, target, jobs, tuple(sets or ()), runs_dir, connection_file, force, dry_run, as_json
        )
        run_search(read, options, again=_continue_command(folder, datestamp=datestamp))
        return
    runs = plan(read, folder, sets=sets or ())
    state = _sweep_state(folder, read.name, runs, on or _target(folder, connection_file, runs_dir, jobs), force=force)
    refuse_jobs_on_a_herd(state.target, jobs)
    check_runs(state.todo, state.target)
    _announce(state)
    if dry_run:
        print("\n".join(record.name for record in state.records))
        return
    records, interrupted = state.records, False
    if state.todo:
        with executor(state.folder, state.target, connection_file, runs_dir, jobs=jobs, force=force) as (
            runs_of,
            guard,
        ):
            records = _carry_out(state, runs_of, guard)
            interrupted = guard.ending
    _print_results(
        folder, records, as_json=as_json, again=_continue_command(folder, datestamp=datestamp) if interrupted else None
    )


@dataclass(frozen=True)
class _SweepState:
    """The records of all runs, and the tasks of unfinished runs."""

    folder: Path
    name: str
    target: SweepTarget
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


def _target(folder: Path, connection_file: Path | None, runs_dir: Path, jobs: int) -> SweepTarget:
    """Return the place of an existing sweep. A new sweep runs on the herd if a coordinator is running, unless `jobs` is
    given."""
    from remuda.client.sweeps.record import SweepFileError, recorded_mode

    try:
        mode = recorded_mode(folder)
    except SweepFileError as error:
        raise InputError(str(error)) from error
    if mode is not None:
        return "local" if mode == "serial" else "herd"
    if connection_file is None and (jobs > 1 or not connection_path(None, runs_dir).exists()):
        return "local"
    return "herd"


def _sweep_state(
    folder: Path, name: str, runs: Sequence[PlannedRun], target: SweepTarget, *, force: bool
) -> _SweepState:
    """Find the unfinished runs; changes nothing."""
    from remuda.client.sweeps.record import SweepBook, SweepFileError
    from remuda.client.sweeps.sweep import tasks

    mode = MODES[target]
    try:
        known = SweepBook(folder, name=name, mode=mode).runs
    except SweepFileError as error:
        raise InputError(str(error)) from error
    return _SweepState(folder, name, target, *tasks(runs, known, mode, force=force))


def _announce(state: _SweepState) -> None:
    runs, todo = len(state.records), len(state.todo)
    variants = len({record.variant for record in state.records})
    resumed = sum(task.on_exists == "resume" for task in state.todo)
    where = "on the herd" if state.target == "herd" else "on this machine"
    print(
        f"{_counted(runs, 'run')} of {_counted(variants, 'variant')}; {runs - todo} finished, {resumed} to continue, "
        f"{todo - resumed} to begin, {where}; folder {state.folder}",
        file=sys.stderr,
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _carry_out(state: _SweepState, runs_of: Executor, guard: ShutdownGuard) -> list[RunRecord]:
    from remuda.client.sweeps.record import SweepBook
    from remuda.client.sweeps.sweep import carry_out
    from remuda.client.sweeps.views import open_view

    owned = own_folder(state.folder)
    latest = {record.name: record for record in state.records}
    view = open_view(state.records)

    def show(news: Sequence[RunRecord]) -> None:
        latest.update((record.name, record) for record in news)
        view.update(news)

    try:
        book = SweepBook(state.folder, name=state.name, mode=MODES[state.target])
        book.write(state.records)
        carry_out(state.todo, runs_of, book, ending=lambda: guard.ending, on_change=show)
        book.write(latest.values())
    finally:
        view.close()
        owned.release()
    return list(latest.values())


def _continue_command(folder: Path, *, datestamp: bool) -> str:
    """Return the command to continue an interrupted sweep: the same command and folder, without starting over."""
    words = [word for word in sys.argv[1:] if word != "--force"]
    if datestamp:
        words = [word for word in words if word != "--datestamp"] + ["--sweep-dir", os.path.relpath(folder)]
    return shlex.join(["remuda", *words])


def _print_results(folder: Path, records: Sequence[RunRecord], *, as_json: bool, again: str | None) -> None:
    from remuda.client.sweeps.results import by_variant, runs_table, variants_table
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

    from remuda.client.sweeps.results import by_variant

    content = {"folder": str(folder), "runs": records, "variants": by_variant(records)}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
