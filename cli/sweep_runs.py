"""Runs the experiments of a sweep, on this machine or on a herd, and the trials of a search."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from remuda.cli.connecting import connected
from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import ResolvedRun
from remuda.storage.existing_folder import Mode

if TYPE_CHECKING:
    from pydantic import JsonValue

    from remuda.client.client import Client
    from remuda.client.sweeps.grid import Grid
    from remuda.client.sweeps.record import RunRecord, SweepBook
    from remuda.client.sweeps.space import Search
    from remuda.client.sweeps.study import Study, Trial
    from remuda.client.sweeps.sweep import Executor, Task
    from remuda.storage.ownership import Ownership
    from remuda.worker.shutdown_guard import ShutdownGuard

SweepTarget = Literal["herd", "local"]


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search from the command line, and the sweep's folder."""

    folder: Path
    target: SweepTarget
    jobs: int
    sets: tuple[str, ...]
    runs_dir: Path
    connection_file: Path | None
    force: bool
    dry_run: bool
    as_json: bool


GRACE_S = 900.0
"""Seconds after a first Ctrl-C for runs to save and evaluate a last checkpoint; longer than the limits of the runs."""
MODES: dict[SweepTarget, Mode] = {"herd": "parallel", "local": "serial"}


def refuse_jobs_on_a_herd(target: SweepTarget, jobs: int) -> None:
    """Raise InputError."""
    if target == "herd" and jobs > 1:
        raise InputError("--jobs needs --on local: a herd runs as many experiments as its workers permit")


def check_runs(todo: Sequence[Task], target: SweepTarget) -> None:
    """Check that all runs are possible here: build every different environment once, and check that the algorithms can
    act there."""
    from remuda.cli.launch import check_input

    checked: set[str] = set()
    for task in todo:
        config = task.run.loaded.config
        parts = config.model_dump(mode="json", include={"env", "policy", "policies"})
        kind = json.dumps([parts, config.learner.initialize_from, config.source_dir])
        if kind not in checked:
            checked.add(kind)
            check_input(ResolvedRun(task.run.loaded, task.run.run_dir, task.on_exists), mode=MODES[target])


@contextmanager
def executor(
    folder: Path, target: SweepTarget, connection_file: Path | None, runs_dir: Path, *, jobs: int, force: bool
) -> Generator[tuple[Executor, ShutdownGuard]]:
    """Yield the executor of the runs, and the guard that reacts to Ctrl-C."""
    from remuda.client.sweeps.herd import HerdRuns
    from remuda.client.sweeps.local import LocalRuns
    from remuda.worker.shutdown_guard import ShutdownGuard

    with ShutdownGuard(grace_s=GRACE_S) as guard:
        if target == "herd":
            with connected(connection_file, runs_dir) as client:
                _require_answer(client, folder)
                yield HerdRuns(client, adopt=not force), guard
        else:
            with LocalRuns(folder, jobs=jobs) as local:
                guard.on_forced_exit(local.kill)
                yield local, guard


def _require_answer(client: Client, folder: Path) -> None:
    """Check before writing that the coordinator answers: a sweep begun on a herd cannot continue on this machine.
    Raises RunFailedError."""
    from remuda.client.sweeps.record import recorded_mode
    from remuda.wire.conversation import UnreachableError

    try:
        client.status()
    except UnreachableError as error:
        here = "" if recorded_mode(folder) else "; --on local runs the sweep without a coordinator"
        raise RunFailedError(f"{error}{here}") from error


def own_folder(folder: Path) -> Ownership:
    """Make the sweep's folder and take ownership until released. Raises InputError if another sweep owns the folder."""
    from remuda.storage.ownership import FolderOwnedError, Ownership

    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Ownership(folder / ".sweep")
    except FolderOwnedError as error:
        raise InputError(f"another sweep is under way: {error}") from error


BEST_SHOWN = 10
"""Trials in the table at the end."""
INSTALL = "a sweep with `search` needs Optuna: pip install 'remuda[search]'"


def run_search(grid: Grid, options: SearchOptions, *, again: str) -> None:
    """Run a search and print its results. `again` is the command to continue an interrupted search.

    Raises InputError, ConfigError and RunFailedError.
    """
    search = _search_of(grid)
    refuse_jobs_on_a_herd(options.target, options.jobs)
    check_runs(_tasks_at_the_ends(grid, search, options), options.target)
    seeds = len(grid.seeds or (0,))
    print(f"{_described(search, seeds)}; folder {options.folder}", file=sys.stderr)
    if options.dry_run:
        from remuda.client.sweeps.space import described

        print("\n".join(f"{one.key}: {described(one.distribution)}" for one in search.settings))
        return
    owned = own_folder(options.folder)
    try:
        book = _book(grid, options)
        where = (options.folder, options.target, options.connection_file, options.runs_dir)
        with executor(*where, jobs=options.jobs, force=options.force) as (runs_of, guard):
            study = _study(grid, search, options)  # the last: with --force it replaces the one that is there
            records = _run_trials(grid, search, study, options, book, runs_of, guard)
            interrupted = guard.ending
    finally:
        owned.release()
    _print_results(grid, study, records, options, again=again if interrupted else None)


def _search_of(grid: Grid) -> Search:
    from remuda.client.sweeps.space import Search

    try:
        import optuna  # pyright: ignore[reportUnusedImport]  # noqa: F401  (only whether it is there)
    except ImportError:
        raise InputError(INSTALL) from None
    assert isinstance(grid.search, Search)
    return grid.search


def _tasks_at_the_ends(grid: Grid, search: Search, options: SearchOptions) -> list[Task]:
    """Check the ends of all ranges and every value of all lists, so that most mistakes are reported before the start.
    Returns a task per check."""
    from remuda.client.sweeps.plan import plan_trial
    from remuda.client.sweeps.record import RunRecord
    from remuda.client.sweeps.space import ends
    from remuda.client.sweeps.sweep import Task
    from remuda.config.errors import ConfigError

    values = {one.key: ends(one.distribution) for one in search.settings}
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
    settings = "one setting" if len(search.settings) == 1 else f"{len(search.settings)} settings"
    return f"a search of {search.trials} trials{each}, {search.at_once} at once, for {settings}"


def _study(grid: Grid, search: Search, options: SearchOptions) -> Study:
    from remuda.client.sweeps.study import FILE, Study

    if options.force:
        (options.folder / FILE).unlink(missing_ok=True)
    try:
        return Study(options.folder, grid.name, search)
    except ValueError as error:
        raise InputError(str(error)) from error


def _book(grid: Grid, options: SearchOptions) -> SweepBook:
    from remuda.client.sweeps.record import SweepBook, SweepFileError

    try:
        return SweepBook(options.folder, name=grid.name, mode=MODES[options.target])
    except SweepFileError as error:
        raise InputError(str(error)) from error


def _run_trials(
    grid: Grid,
    search: Search,
    study: Study,
    options: SearchOptions,
    book: SweepBook,
    runs_of: Executor,
    guard: ShutdownGuard,
) -> list[RunRecord]:
    """Run all trials; returns the newest records of all runs."""
    from remuda.client.sweeps.plan import plan_trial
    from remuda.client.sweeps.search import SearchLoop
    from remuda.client.sweeps.sweep import tasks
    from remuda.client.sweeps.views import open_view

    mode = MODES[options.target]
    seeds = len(grid.seeds or (0,))
    latest: dict[str, RunRecord] = {} if options.force else dict(book.runs)
    view = open_view(list(latest.values()), of=search.trials * seeds)

    def tasks_of(trial: Trial) -> tuple[Sequence[RunRecord], Sequence[Task]]:
        runs = plan_trial(grid, trial.number, trial.settings, options.folder, sets=options.sets)
        return tasks(runs, {} if options.force else book.runs, mode, force=options.force)

    def show(news: Sequence[RunRecord]) -> None:
        latest.update((record.name, record) for record in news)
        view.update(news)

    try:
        SearchLoop(
            search,
            study,
            runs_of,
            book,
            tasks_of=tasks_of,
            name_of=lambda trial: grid.trial(trial.number, trial.settings).name,
            report_every_env_steps=_report_every(grid, search, options),
            on_change=show,
        ).run(ending=lambda: guard.ending)
        book.write(latest.values())
    finally:
        view.close()
    return list(latest.values())


def _report_every(grid: Grid, search: Search, options: SearchOptions) -> int:
    """Return the interval between reports: from the pruning, or else the longest interval of evaluations at the ends of
    the searched ranges."""
    if search.pruning is not None and search.pruning.every_env_steps is not None:
        return search.pruning.every_env_steps
    checked = _tasks_at_the_ends(grid, search, options)
    return max(task.run.loaded.config.evaluator.interval_env_steps for task in checked)


def _print_results(
    grid: Grid, study: Study, records: Sequence[RunRecord], options: SearchOptions, *, again: str | None
) -> None:
    from remuda.client.sweeps.results import best_of, draw, failures, results_json, trials_table
    from remuda.training.next_command import plot_command

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
            given = [part for text in options.sets for part in ("--set", text)]
            print(f"  remuda train {shlex.join([os.path.relpath(grid.config), *given, *_sets(settings)])}")
        print(f"  {plot_command(options.folder)}")
        if drawn is not None:
            print(f"and look at {os.path.relpath(drawn)}")
    if trials and not any(trial.state in ("complete", "running") for trial in trials):
        raise RunFailedError(f"no trial has come to its end; the first says: {_first_reason(records)}")


def _sets(settings: Mapping[str, JsonValue]) -> list[str]:
    import json

    return [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]


def _first_reason(records: Sequence[RunRecord]) -> str:
    return next((record.reason for record in records if record.reason), "nothing")
