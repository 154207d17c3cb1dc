"""`remuda sweep`: many runs from a grid."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.connecting import ConnectionPath, connection_path
from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import DEFAULT_RUNS_DIR, AsJson, RunsDirOrAddress, Sets, on_disk

if TYPE_CHECKING:  # it imports what runs experiments, which --help does not need
    from remuda.cli.sweep_runs import SweepOptions
    from remuda.client.sweeps.grid import Grid
    from remuda.client.sweeps.plan import Task
    from remuda.client.sweeps.record import RunRecord

EXAMPLE = "remuda sweep examples/sweeps/cartpole.yaml --on local --jobs 2"

GridPath = Annotated[
    Path,
    typer.Argument(
        metavar="GRID",
        help="A .yaml file with name, config, seeds, and grid or search.",
    ),
]
On = Annotated[
    Literal["herd", "local"] | None,
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
    runs_dir: RunsDirOrAddress = DEFAULT_RUNS_DIR,
    datestamp: Datestamp = False,
    force: ForceAll = False,
    dry_run: DryRun = False,
    connection_file: ConnectionPath = None,
    as_json: AsJson = False,
) -> None:
    """Run every combination of the values in a grid with every seed, the trials of a search, or a population, with a
    coordinator's workers or here, and print the results.

    The same command continues an interrupted sweep: finished runs are kept, and the rest continues. A failed run does
    not stop the sweep. Ctrl-C saves and ends running runs; a second Ctrl-C ends everything at once.
    """
    from remuda.client.sweeps.grid import read_grid

    read = read_grid(grid)
    from remuda.cli.sweep_runs import SweepOptions, run_population, run_search

    address = _address_of(sweep_dir, runs_dir)
    runs_dir, sweep_dir = on_disk(runs_dir), None if sweep_dir is None else on_disk(sweep_dir)
    folder = _folder(read.name, sweep_dir, runs_dir, datestamp=datestamp)
    target = on or _target(folder, connection_file, runs_dir, jobs)
    if address is not None and target == "local":
        raise InputError(
            f"{address}: only a coordinator there can run a sweep at an address: start one with `remuda coordinator "
            f"--runs-dir {address}` and workers, or give the sweep a folder"
        )
    again = _continue_command(folder, datestamp=datestamp)
    options = SweepOptions(
        folder, target, jobs, tuple(sets or ()), runs_dir, connection_file, force, dry_run, as_json, again
    )
    if read.population is not None:
        run_population(read, options)
    elif read.search is not None:
        run_search(read, options)
    else:
        _run_grid(read, options)


def _run_grid(grid: Grid, options: SweepOptions) -> None:
    from remuda.cli.sweep_runs import book_of, check_runs, executor, owned, shown
    from remuda.client.sweeps.plan import carry_out, plan, tasks

    runs = plan(grid, options.folder, sets=options.sets)
    records, todo = tasks(runs, book_of(grid.name, options).runs, options.mode, force=options.force)
    check_runs(todo, options)
    _announce(records, todo, options)
    if options.dry_run:
        print("\n".join(record.name for record in records))
        return
    again = None
    if todo:
        with executor(options) as (runs_of, guard), owned(options.folder), shown(records) as (latest, show):
            book = book_of(grid.name, options)
            book.write(records)
            carry_out(todo, runs_of, book, ending=lambda: guard.ending, on_change=show)
            records = list(latest.values())
            book.write(records)
            again = options.again if guard.ending else None
    _print_results(records, options, again)


def _address_of(sweep_dir: Path | None, runs_dir: Path) -> str | None:
    """Return the address of the coordinator whose bucket has the sweep; None for a sweep in a folder. Raises InputError
    for a sweep that no coordinator would copy."""
    from remuda.storage.bucket.address import address_of

    address, own = address_of(runs_dir), None if sweep_dir is None else address_of(sweep_dir)
    if own is not None and not own.startswith(f"{address}/"):
        raise InputError(
            f"--sweep-dir {own} is not inside --runs-dir {address or runs_dir}: give the address of a coordinator there"
        )
    return address if own is not None or sweep_dir is None else None


def _folder(name: str, sweep_dir: Path | None, runs_dir: Path, *, datestamp: bool) -> Path:
    if sweep_dir is not None and datestamp:
        raise InputError("give only one of --sweep-dir (the folder itself) and --datestamp (a new folder)")
    stamp = f"{datetime.now():%Y-%m-%d_%H-%M-%S}_" if datestamp else ""
    folder = Path(os.path.abspath(sweep_dir or runs_dir / f"{stamp}{name}"))
    if (folder / "config.json").exists():
        raise InputError(f"{folder} is a run folder: give the grid another name, or the sweep a --sweep-dir")
    return folder


def _target(folder: Path, connection_file: Path | None, runs_dir: Path, jobs: int) -> Literal["herd", "local"]:
    """Return the place of an existing sweep. A new sweep runs on the herd if a coordinator is running, unless `jobs` is
    given."""
    from remuda.client.sweeps.record import read_sweep

    known = read_sweep(folder)
    mode = None if known is None else known.mode
    if mode is not None:
        return "local" if mode == "serial" else "herd"
    if connection_file is None and (jobs > 1 or not connection_path(None, runs_dir).exists()):
        return "local"
    return "herd"


def _announce(records: Sequence[RunRecord], todo: Sequence[Task], options: SweepOptions) -> None:
    from remuda.config.errors import counted

    variants = len({record.variant for record in records})
    resumed = sum(task.on_exists == "resume" for task in todo)
    where = "on the herd" if options.target == "herd" else "on this machine"
    print(
        f"{counted(len(records), 'run')} of {counted(variants, 'variant')}; {len(records) - len(todo)} finished, "
        f"{resumed} to continue, {len(todo) - resumed} to begin, {where}; folder {options.folder}",
        file=sys.stderr,
    )


def _continue_command(folder: Path, *, datestamp: bool) -> str:
    """Return the command to continue an interrupted sweep: the same command and folder, without starting over."""
    words = [word for word in sys.argv[1:] if word != "--force"]
    if datestamp:
        words = [word for word in words if word != "--datestamp"] + ["--sweep-dir", os.path.relpath(folder)]
    return shlex.join(["remuda", *words])


def _print_results(records: Sequence[RunRecord], options: SweepOptions, again: str | None) -> None:
    from remuda.client.sweeps.results import by_variant, failures, json_text, runs_table, variants_table
    from remuda.training.next_command import plot_command

    if options.as_json:
        print(json_text({"folder": str(options.folder), "runs": records, "variants": by_variant(records)}))
    else:
        print(f"{runs_table(records)}\n\n{variants_table(by_variant(records))}\n")
        print("Type next:")
        if again is not None:
            print(f"  {again}")
        print(f"  {plot_command(options.folder)}")
    if failed := failures(records):
        raise RunFailedError(failed)
