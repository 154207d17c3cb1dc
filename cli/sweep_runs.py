"""Makes the runs of a sweep, on this machine or on a herd: of a grid, the trials of a search, or a population."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from remuda.cli.connecting import connected
from remuda.cli.errors import InputError, RunFailedError
from remuda.client.checking import check_run
from remuda.client.client import Client
from remuda.client.sweeps import family
from remuda.client.sweeps.evolution import Evolution, PopulationFailedError
from remuda.client.sweeps.grid import Grid
from remuda.client.sweeps.herd import HerdRuns
from remuda.client.sweeps.lineage import ORIGINS
from remuda.client.sweeps.local import LocalRuns
from remuda.client.sweeps.plan import Executor, Task, plan_trial, tasks
from remuda.client.sweeps.population import problems
from remuda.client.sweeps.record import RunRecord, SweepBook, read_sweep
from remuda.client.sweeps.results import best_of, draw, failures, json_text, results_json, trials_table
from remuda.client.sweeps.search import SearchLoop
from remuda.client.sweeps.space import Search
from remuda.client.sweeps.views import open_view
from remuda.config.errors import ConfigError
from remuda.storage.existing_folder import Mode, move_away
from remuda.storage.lock import FolderOwnedError, Ownership
from remuda.training.next_command import evaluate_command, plot_command
from remuda.wire.conversation import UnreachableError
from remuda.worker.shutdown_guard import ShutdownGuard

if TYPE_CHECKING:  # it imports optuna, which only a search needs
    from remuda.client.sweeps.study import Study, Trial

SweepTarget = Literal["herd", "local"]


@dataclass(frozen=True)
class SweepOptions:
    """Options of a sweep from the command line, and the sweep's folder."""

    folder: Path
    target: SweepTarget
    jobs: int
    sets: tuple[str, ...]
    runs_dir: Path
    connection_file: Path | None
    force: bool
    dry_run: bool
    as_json: bool
    again: str
    """Command to continue an interrupted sweep."""

    @property
    def mode(self) -> Mode:
        """Mode of the runs."""
        return "parallel" if self.target == "herd" else "serial"


GRACE_S = 900.0
"""Seconds after a first Ctrl-C for runs to save and evaluate a last checkpoint; longer than the limits of the runs."""


def check_runs(todo: Sequence[Task], options: SweepOptions) -> None:
    """Check that all runs are possible here: build every different environment once, and check that the algorithms can
    act there. Raises InputError, UnusableError."""
    if options.target == "herd" and options.jobs > 1:
        raise InputError("--jobs needs --on local: a herd trains as many runs as its workers permit")
    checked: set[str] = set()
    for task in todo:
        config = task.run.loaded.config
        parts = config.model_dump(mode="json", include={"env", "policy", "policies"})
        kind = json.dumps([parts, config.learner.initialize_from, config.source_dir])
        if kind not in checked:
            checked.add(kind)
            check_run(task.run.loaded, task.run.run_dir, task.on_exists)


@contextmanager
def executor(options: SweepOptions) -> Generator[tuple[Executor, ShutdownGuard]]:
    """Yield the executor of the runs, and the guard that reacts to Ctrl-C."""
    with ShutdownGuard(grace_s=GRACE_S) as guard:
        if options.target == "herd":
            with connected(options.connection_file, options.runs_dir) as client:
                _require_answer(client, options.folder)
                try:
                    yield HerdRuns(client, adopt=not options.force), guard
                except UnreachableError as error:
                    text = f"{error}\nruns of the herd continue; to follow them again, type: {options.again}"
                    raise RunFailedError(text) from error
        else:
            with LocalRuns(options.folder, jobs=options.jobs) as local:
                guard.on_forced_exit(local.kill)
                yield local, guard


def _require_answer(client: Client, folder: Path) -> None:
    """Check before writing that the coordinator answers: a sweep begun on a herd cannot continue on this machine.
    Raises RunFailedError."""
    try:
        client.status()
    except UnreachableError as error:
        here = "" if read_sweep(folder) else "; --on local runs the sweep without a coordinator"
        raise RunFailedError(f"{error}{here}") from error


@contextmanager
def owned(folder: Path) -> Generator[None]:
    """Make the sweep's folder and own the folder during the body. Raises InputError if another sweep owns the
    folder."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        ownership = Ownership(folder / ".sweep")
    except FolderOwnedError as error:
        raise InputError(f"another sweep is under way: {error}") from error
    try:
        yield
    finally:
        ownership.release()


def book_of(name: str, options: SweepOptions) -> SweepBook:
    """Read the sweep's records. Raises SweepFileError for a folder of another sweep."""
    return SweepBook(options.folder, name=name, mode=options.mode)


@contextmanager
def shown(
    records: Sequence[RunRecord], *, of: int | None = None
) -> Generator[tuple[dict[str, RunRecord], Callable[[Sequence[RunRecord]], None]]]:
    """Show progress during the body: yield the newest records by name, and a function that takes news. `of` is the
    final number of runs, if larger than the number of `records`."""
    latest = {record.name: record for record in records}

    def show(news: Sequence[RunRecord]) -> None:
        latest.update((record.name, record) for record in news)
        view.update(news)

    with closing(open_view(records, of=of)) as view:
        yield latest, show


BEST_SHOWN = 10
"""Trials in the table at the end."""
INSTALL = "a sweep with `search` needs Optuna: pip install 'remuda[search]'"


def run_search(grid: Grid, options: SweepOptions) -> None:
    """Run a search and print its results. Raises InputError, ConfigError and RunFailedError."""
    search = _search_of(grid)
    checked = _tasks_at_the_ends(grid, options)
    check_runs(checked, options)
    seeds = len(grid.seeds or (0,))
    print(f"{_described(search, seeds)}; folder {options.folder}", file=sys.stderr)
    if options.dry_run:
        print("\n".join(f"{key}: {one}" for key, one in search.space.items()))
        return
    longest = max(task.run.loaded.config.evaluator.interval_env_steps for task in checked)
    with owned(options.folder):
        book = book_of(grid.name, options)
        with executor(options) as (runs_of, guard):
            study = _study(grid, search, options)  # the last: with --force it replaces the one that is there
            records = _run_trials(grid, search, study, options, book, runs_of, guard, longest)
            interrupted = guard.ending
    _print_results(grid, study, records, options, again=options.again if interrupted else None)


def _search_of(grid: Grid) -> Search:
    try:
        import optuna  # pyright: ignore[reportUnusedImport]  # noqa: F401  (only whether it is there)
    except ImportError:
        raise InputError(INSTALL) from None
    assert grid.search is not None
    return grid.search


def _tasks_at_the_ends(grid: Grid, options: SweepOptions) -> list[Task]:
    """Check the ends of all ranges and every value of all lists, so that most mistakes are reported before the start.
    Returns a task per check."""
    values = {key: one.ends for key, one in grid.space.items()}
    most = max(len(some) for some in values.values())
    settings_of = [{key: some[min(index, len(some) - 1)] for key, some in values.items()} for index in range(most)]
    problems: dict[str, None] = {}
    checked: list[Task] = []
    for settings in settings_of:
        try:
            [run, *_] = plan_trial(grid, 0, settings, options.folder, sets=options.sets)
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        record = RunRecord(name=run.name, variant=run.variant, seed=run.seed, settings={}, run_dir="")
        checked.append(Task(run, "error", record))
    if problems:
        raise ConfigError(list(problems))
    return checked


def _described(search: Search, seeds: int) -> str:
    each = "" if seeds == 1 else f" of {seeds} runs each"
    settings = "one setting" if len(search.space) == 1 else f"{len(search.space)} settings"
    return f"a search of {search.trials} trials{each}, {search.at_once} at once, for {settings}"


def _study(grid: Grid, search: Search, options: SweepOptions) -> Study:
    from remuda.client.sweeps.study import FILE, Study

    if options.force:
        (options.folder / FILE).unlink(missing_ok=True)
    try:
        return Study(options.folder, grid.name, search)
    except ValueError as error:
        raise InputError(str(error)) from error


def _run_trials(
    grid: Grid,
    search: Search,
    study: Study,
    options: SweepOptions,
    book: SweepBook,
    runs_of: Executor,
    guard: ShutdownGuard,
    report_every: int,
) -> list[RunRecord]:
    """Run all trials; return the newest records of all runs. Without an interval in the pruning, trials report every
    `report_every` environment steps."""
    if search.pruning is not None and search.pruning.every_env_steps is not None:
        report_every = search.pruning.every_env_steps

    def tasks_of(trial: Trial) -> tuple[Sequence[RunRecord], Sequence[Task]]:
        runs = plan_trial(grid, trial.number, trial.settings, options.folder, sets=options.sets)
        return tasks(runs, {} if options.force else book.runs, options.mode, force=options.force)

    former = [] if options.force else list(book.runs.values())
    with shown(former, of=search.trials * len(grid.seeds or (0,))) as (latest, show):
        SearchLoop(
            search,
            study,
            runs_of,
            book,
            tasks_of=tasks_of,
            name_of=lambda trial: grid.trial(trial.number, trial.settings).name,
            report_every_env_steps=report_every,
            on_change=show,
        ).run(ending=lambda: guard.ending)
        book.write(latest.values())
    return list(latest.values())


def _print_results(
    grid: Grid, study: Study, records: Sequence[RunRecord], options: SweepOptions, *, again: str | None
) -> None:
    trials, importances = study.trials, study.importances()
    if options.as_json:
        print(results_json(options.folder, records, trials, importances))
    else:
        print(f"{trials_table(trials, most=BEST_SHOWN)}\n")
        if failed := failures(records):
            print(f"{failed}\n")
        if importances:
            shares = ", ".join(f"{key} {share:.0%}" for key, share in importances.items())
            print(f"what made the best trials better: {shares}\n")
        drawn = draw(options.folder, trials, study.log_settings)
        print("Type next:")
        if again is not None:
            print(f"  {again}")
        best = best_of(trials)
        if best is not None:
            settings = grid.trial(best.number, best.settings).settings
            sets = [*options.sets, *(f"{key}={json.dumps(value)}" for key, value in settings.items())]
            given = [part for text in sets for part in ("--set", text)]
            print(f"  remuda train {shlex.join([os.path.relpath(grid.config), *given])}")
        print(f"  {plot_command(options.folder)}")
        if drawn is not None:
            print(f"and look at {os.path.relpath(drawn)}")
    if trials and not any(trial.state in ("complete", "running") for trial in trials):
        reason = next((record.reason for record in records if record.reason), "nothing")
        raise RunFailedError(f"no trial has come to its end; the first says: {reason}")


def run_population(grid: Grid, options: SweepOptions) -> None:
    """Train a population and print its results. Raises InputError, ConfigError, LineageError and RunFailedError."""
    pbt = grid.population
    assert pbt is not None
    checked = _tasks_at_the_ends(grid, options)
    config = checked[0].run.loaded.config
    grid.require_none(problems(pbt, config))
    check_runs(checked, options)
    most = config.stop.max_env_steps
    print(
        f"a population of {pbt.population} members, compared every {pbt.interval_env_steps} of {most} env steps; "
        f"folder {options.folder}",
        file=sys.stderr,
    )
    if options.dry_run:
        print("\n".join(f"{key}: {one}" for key, one in pbt.space.items()))
        return
    with owned(options.folder):
        book = book_of(grid.name, options)
        if options.force:
            _set_aside(book, options.folder)
        with executor(options) as (runs_of, guard), shown([], of=pbt.population) as (_, show):
            evolution = Evolution(
                grid,
                pbt,
                runs_of,
                book,
                folder=options.folder,
                mode=options.mode,
                sets=options.sets,
                on_change=lambda news: show([replace(record, name=record.variant) for record in news]),
                say=lambda text: print(text, file=sys.stderr, flush=True),
            )
            try:
                is_over = evolution.run(ending=lambda: guard.ending)
            except PopulationFailedError as error:
                raise RunFailedError(str(error)) from error
    _print_population(grid, book, options, again=None if is_over else options.again)


def _set_aside(book: SweepBook, folder: Path) -> None:
    """Move the runs of an earlier population away. Raises FolderOwnedError if a process works on one of them."""
    for path in folder.glob("*/*/.owner"):
        Ownership(path).release()
    names = [
        path.name for path in folder.iterdir() if path.name in {ORIGINS, *(run.variant for run in book.runs.values())}
    ]
    if names:
        move_away(folder, names, now=datetime.now().astimezone())
    book.clear()


def _print_population(grid: Grid, book: SweepBook, options: SweepOptions, *, again: str | None) -> None:
    lineage = book.lineage
    assert lineage is not None
    best = next((record for _, record in family.members(lineage, book.runs) if record.last_return is not None), None)
    if options.as_json:
        content = {
            "folder": str(options.folder),
            "runs": list(book.runs.values()),
            "best": None if best is None else best.name,
            "lineage": lineage.intervals,
        }
        print(json_text(content))
        return
    print(f"{family.members_table(lineage, book.runs)}\n\n{family.tree(lineage)}\n")
    if failed := failures([record for _, record in family.members(lineage, book.runs)]):
        print(f"{failed}\n")
    drawn = family.draw(options.folder, lineage, log=next(iter(grid.space.values())).log)
    print("Type next:")
    if again is not None:
        print(f"  {again}")
    if best is not None:
        run_dir = os.path.relpath(options.folder / best.run_dir)
        print(f"  {evaluate_command(run_dir, has_best=True)}")
    if drawn is not None:
        print(f"and look at {os.path.relpath(drawn)}")
