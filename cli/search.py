"""`remuda sweep` with a search: Optuna chooses the settings of each trial."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue

from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.sweep import MODES, check_runs, executor, own, refuse_jobs_on_a_herd
from remuda.cli.sweep_request import Asked

if TYPE_CHECKING:
    from remuda.sweeping.grid import Grid
    from remuda.sweeping.record import RunRecord
    from remuda.sweeping.search.space import Search
    from remuda.sweeping.search.study import Study, Trial
    from remuda.sweeping.sweep import Executor, Task
    from remuda.worker.shutdown_guard import ShutdownGuard

BEST_SHOWN = 10
"""Trials in the table at the end."""
INSTALL = "a sweep with `search` needs Optuna: pip install 'remuda[search]'"


def search_out(grid: Grid, asked: Asked, *, again: str) -> None:
    """Carry out a search and print its results. `again` says how to continue one that was interrupted.

    Raises InputError, ConfigError and RunFailedError.
    """
    search = _search_of(grid)
    refuse_jobs_on_a_herd(asked.place, asked.jobs)
    check_runs(_tasks_of_both_ends(grid, search, asked))
    seeds = len(grid.seeds or (0,))
    print(f"{_described(search, seeds)}; folder {asked.folder}", file=sys.stderr)
    if asked.dry_run:
        print("\n".join(f"{one.key}: {one.distribution}" for one in search.settings))
        return
    owned = own(asked.folder)
    try:
        study = _study(grid, search, asked)
        where = (asked.folder, asked.place, asked.connection_file, asked.runs_dir)
        with executor(*where, jobs=asked.jobs, force=asked.force) as (runs_of, guard):
            records = _under_way(grid, search, study, asked, runs_of, guard)
            interrupted = guard.ending
    finally:
        owned.release()
    _tell(grid, study, records, asked, again=again if interrupted else None)


def _search_of(grid: Grid) -> Search:
    from remuda.sweeping.search.space import Search

    try:
        import optuna  # pyright: ignore[reportUnusedImport]  # noqa: F401  (only whether it is there)
    except ImportError:
        raise InputError(INSTALL) from None
    assert isinstance(grid.search, Search)
    return grid.search


def _tasks_of_both_ends(grid: Grid, search: Search, asked: Asked) -> list[Task]:
    """Check the least and the largest values of all settings, so that most mistakes are told before anything starts."""
    from remuda.config.errors import ConfigError
    from remuda.sweeping.plan import plan_trial
    from remuda.sweeping.record import RunRecord
    from remuda.sweeping.search.space import Choices
    from remuda.sweeping.sweep import Task

    ends: list[dict[str, JsonValue]] = [{}, {}]
    for one in search.settings:
        given = one.distribution
        low, high = (given.values[0], given.values[-1]) if isinstance(given, Choices) else (given.low, given.high)
        ends[0][one.key], ends[1][one.key] = low, high
    problems: dict[str, None] = {}
    checked: list[Task] = []
    for settings in ends:
        try:
            [run, *_] = plan_trial(grid, 0, settings, asked.folder, sets=asked.sets)
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
    return f"a search of {search.trials} trials{each}, {search.at_once} at once, for {len(search.settings)} settings"


def _study(grid: Grid, search: Search, asked: Asked) -> Study:
    from remuda.sweeping.search.study import FILE, Study

    if asked.force:
        (asked.folder / FILE).unlink(missing_ok=True)
    try:
        return Study(asked.folder, grid.name, search)
    except ValueError as error:
        raise InputError(str(error)) from error


def _under_way(
    grid: Grid, search: Search, study: Study, asked: Asked, runs_of: Executor, guard: ShutdownGuard
) -> list[RunRecord]:
    """Run all trials; returns the newest records of all runs."""
    from remuda.cli.sweep_view import open_view
    from remuda.sweeping.plan import plan_trial
    from remuda.sweeping.record import SweepBook, SweepFileError
    from remuda.sweeping.search.carrying import SearchUnderWay
    from remuda.sweeping.sweep import tasks

    mode = MODES[asked.place]
    try:
        book = SweepBook(asked.folder, name=grid.name, mode=mode)
    except SweepFileError as error:
        raise InputError(str(error)) from error
    seeds = len(grid.seeds or (0,))
    latest: dict[str, RunRecord] = {} if asked.force else dict(book.runs)
    view = open_view(list(latest.values()), of=search.trials * seeds)

    def tasks_of(trial: Trial) -> tuple[Sequence[RunRecord], Sequence[Task]]:
        runs = plan_trial(grid, trial.number, trial.settings, asked.folder, sets=asked.sets)
        return tasks(runs, {} if asked.force else book.runs, mode, force=asked.force)

    def show(news: Sequence[RunRecord]) -> None:
        latest.update((record.name, record) for record in news)
        view.update(news)

    try:
        SearchUnderWay(
            search,
            study,
            runs_of,
            book,
            tasks_of=tasks_of,
            report_every_env_steps=_report_every(grid, search, asked),
            on_change=show,
        ).run(ending=lambda: guard.ending)
        book.write(latest.values())
    finally:
        view.close()
    return list(latest.values())


def _report_every(grid: Grid, search: Search, asked: Asked) -> int:
    from remuda.config.load import load_config

    if search.pruning is not None and search.pruning.every_env_steps is not None:
        return search.pruning.every_env_steps
    return load_config(grid.config, overrides=asked.sets).config.evaluator.interval_env_steps


def _tell(grid: Grid, study: Study, records: Sequence[RunRecord], asked: Asked, *, again: str | None) -> None:
    from remuda.sweeping.search.picture import draw
    from remuda.sweeping.search.results import best_of, results_json, trials_table

    trials, importances = study.trials, study.importances()
    if asked.as_json:
        print(results_json(asked.folder, records, trials, importances))
    else:
        print(f"{trials_table(trials, most=BEST_SHOWN)}\n")
        if importances:
            shares = ", ".join(f"{key} {share:.0%}" for key, share in importances.items())
            print(f"what made the best trials better: {shares}\n")
        drawn = draw(asked.folder, trials, study.log_settings)
        print("Type next:")
        if again is not None:
            print(f"  {again}")
        best = best_of(trials)
        if best is not None:
            settings = grid.trial(best.number, best.settings).settings
            print(f"  remuda train {shlex.join([os.path.relpath(grid.config), *_sets(settings)])}")
        print(f"  remuda plot {os.path.relpath(asked.folder)} -o {asked.folder.name}.png")
        if drawn is not None:
            print(f"and look at {os.path.relpath(drawn)}")
    if trials and not any(trial.state in ("complete", "running") for trial in trials):
        raise RunFailedError(f"no trial has come to its end; the first says: {_first_reason(records)}")


def _sets(settings: Mapping[str, JsonValue]) -> list[str]:
    import json

    return [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]


def _first_reason(records: Sequence[RunRecord]) -> str:
    return next((record.reason for record in records if record.reason), "nothing")
