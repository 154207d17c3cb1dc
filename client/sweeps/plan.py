"""Plans all runs of a grid with valid configs and folders, and runs a sweep to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace
from pydantic import JsonValue

from remuda.client.beginning import keep_former_defaults
from remuda.client.sweeps.grid import Grid, Variant, run_name
from remuda.client.sweeps.record import RunRecord, SweepBook
from remuda.config.errors import ConfigError, flat
from remuda.config.load import LoadedConfig, load_config
from remuda.config.readers import Override, parse_override
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.existing_folder import REPLACED, Mode, OnExists, RunFolderError, check
from remuda.storage.run_folder import RunFolder

_MAY_CHANGE = frozenset({"source_dir", "stop", "log", "checkpoint", "limits", "launch", "affinity"})
"""Sections that may change when a run is continued."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep, before anything is written."""

    name: str
    variant: str
    seed: int
    settings: Mapping[str, JsonValue]
    """The settings from the grid, by dotted key."""
    loaded: LoadedConfig
    run_dir: Path
    arguments: tuple[str, ...]
    """Arguments of `remuda train` for the same config, without the run folder."""


def plan(grid: Grid, folder: Path, *, sets: Sequence[str] = ()) -> list[PlannedRun]:
    """Return every run of the grid, in `<folder>/<variant>/<variant>_s<seed>`.

    `sets` override the grid's config in all runs. Raises ConfigError with the problems of all variants.
    """
    problems: dict[str, None] = {}
    runs: list[PlannedRun] = []
    for variant in grid.variants():
        try:
            runs += _runs_of(variant, grid, folder, sets)
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ConfigError(list(problems))
    return runs


def plan_trial(
    grid: Grid, number: int, settings: Mapping[str, JsonValue], folder: Path, *, sets: Sequence[str] = ()
) -> list[PlannedRun]:
    """Return the runs of a trial of a search, one run per seed. Raises ConfigError."""
    return _runs_of(grid.trial(number, settings), grid, folder, sets)


def _runs_of(variant: Variant, grid: Grid, folder: Path, sets: Sequence[str]) -> list[PlannedRun]:
    """Return a run per seed. Raises ConfigError."""
    _check_sets(grid, [parse_override(text) for text in sets])
    seeds = grid.seeds if grid.seeds is not None else (None,)
    return [_planned(grid, variant, seed, folder=folder, sets=sets) for seed in seeds]


def plan_member(
    grid: Grid,
    number: int,
    settings: Mapping[str, JsonValue],
    folder: Path,
    *,
    seed: int | None = None,
    sets: Sequence[str] = (),
) -> PlannedRun:
    """Return the run of a member of a population; without a seed with the sweep's. Raises ConfigError."""
    _check_sets(grid, [parse_override(text) for text in sets])
    if seed is None and grid.seeds is not None:
        seed = grid.seeds[0]
    return _planned(grid, grid.member(number, settings), seed, folder=folder, sets=sets)


def beginning(run: PlannedRun, mode: Mode, *, force: bool = False, may_change: Collection[str] = ()) -> OnExists:
    """Choose the start of a run in its folder: new, from the newest checkpoint, or from the beginning again.

    `may_change` are further settings that may differ from those of the folder. A run that died before its first
    checkpoint starts again. Raises RunFolderError if the folder belongs to another mode, and ConfigError if it was made
    with different settings.
    """
    folder = RunFolder(run.run_dir)
    if not folder.root.exists() or not any(entry.name != REPLACED for entry in folder.root.iterdir()):
        return "error"
    if force or not folder.config_json.is_file():
        return "force"
    check(folder.root, "resume", mode=mode)
    known = {*_MAY_CHANGE, *may_change}
    different = [key for key in changed(run) if not {key, key.partition(".")[0]} & known]
    if different:
        raise ConfigError(
            [
                f"{folder.config_json}: {run.name} was started with other settings ({', '.join(different)}): start "
                "over with --force, or keep it and give the sweep another name or --sweep-dir"
            ]
        )
    return "resume" if _has_checkpoint(folder) else "force"


def changed(run: PlannedRun) -> list[str]:
    """Return the settings (dotted keys) that differ between the config of an existing run folder and the planned
    config.

    Changed defaults do not count: the run keeps its values.
    """
    there = flat(load_config(RunFolder(run.run_dir).config_json).config.model_dump(mode="json"))
    planned = flat(keep_former_defaults(run.loaded, run.run_dir).config.model_dump(mode="json"))
    return [key for key in sorted(there | planned) if there.get(key) != planned.get(key) and key != "source_dir"]


def _planned(grid: Grid, variant: Variant, seed: int | None, *, folder: Path, sets: Sequence[str]) -> PlannedRun:
    named = Override(("name",), variant.name, f"{grid.path}: the name of a variant")
    loaded = load_config(grid.config, overrides=[*sets, *variant.overrides, named], seed=seed)
    loaded.require_numbers("the runs of a sweep share the machine")
    seed = loaded.config.seed
    name = run_name(variant.name, seed)
    arguments: list[str] = [str(loaded.path)]
    for text in sets:
        arguments += ["--set", text]
    for override in (*variant.overrides, named):
        arguments += ["--set", f"{'.'.join(map(str, override.loc))}={json.dumps(override.value)}"]
    arguments += ["--seed", str(seed)]
    return PlannedRun(
        name, variant.name, seed, variant.settings, loaded, folder / variant.name / name, tuple(arguments)
    )


def _check_sets(grid: Grid, given: Sequence[Override]) -> None:
    """Raise ConfigError for a setting that the grid varies or sets."""
    for override in given:
        key = ".".join(map(str, override.loc))
        for own in (*grid.parameters, *grid.space, "name", "seed"):
            if f"{own}.".startswith(f"{key}.") or f"{key}.".startswith(f"{own}."):
                raise ConfigError([f"{override.source}: {own} is given by the grid {grid.path}: change it there"])


def _has_checkpoint(folder: RunFolder) -> bool:
    try:
        return CheckpointIndex(folder.ckpt).last is not None
    except CheckpointIndexError as error:
        raise RunFolderError(str(error)) from None


POLL_S = 0.2


@dataclass(frozen=True)
class Task:
    """An unfinished run, with the way to begin in its folder."""

    run: PlannedRun
    on_exists: OnExists
    record: RunRecord


class Executor(Protocol):
    """Starts runs and follows them, on this machine or on a herd."""

    def begin(self, tasks: Sequence[Task]) -> Iterable[RunRecord]:
        """Add runs to those of earlier calls; each step of the iterator begins one run. The caller may stop early."""
        ...

    def stop_runs(self, names: Collection[str]) -> None:
        """Let these runs save and end, or never begin; their state is then `stopped`."""
        ...

    def poll(self) -> list[RunRecord]:
        """Return records changed since the last call. Never blocks for long."""
        ...

    def stop(self) -> None:
        """Let running runs save and end; no further run begins."""
        ...


def tasks(
    runs: Sequence[PlannedRun], known: Mapping[str, RunRecord], mode: Mode, *, force: bool = False
) -> tuple[list[RunRecord], list[Task]]:
    """Return the records of all runs, and the tasks for unfinished runs.

    Skips a finished run, unless `force` is true or the stop conditions have changed. Raises RunFolderError and
    ConfigError like `plan.beginning`.
    """
    records: list[RunRecord] = []
    todo: list[Task] = []
    for run in runs:
        former = known.get(run.name)
        on_exists = beginning(run, mode, force=force)
        over = former if on_exists == "resume" and former is not None and former.state == "finished" else None
        if over is not None and not any(key.startswith("stop.") for key in changed(run)):
            records.append(over)
            continue
        new = RunRecord(
            name=run.name,
            variant=run.variant,
            seed=run.seed,
            settings=dict(run.settings),
            run_dir=f"{run.variant}/{run.name}",
        )
        # A run that is continued keeps its results while it waits.
        kept = new if former is None or on_exists != "resume" else replace(former, state="waiting", reason=None)
        records.append(kept)
        todo.append(Task(run, on_exists, kept))
    return records, todo


def carry_out(
    todo: Sequence[Task],
    executor: Executor,
    book: SweepBook,
    *,
    ending: Callable[[], bool],
    on_change: Callable[[Sequence[RunRecord]], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when all runs are over, or, after `ending` is true, when all started runs are over. A failed run does not
    stop the sweep."""
    states = {task.record.name: task.record for task in todo}

    def note(news: Sequence[RunRecord]) -> None:
        before = ((states[record.name], record) for record in news)
        if any((one.state, one.experiment) != (record.state, record.experiment) for one, record in before):
            book.write(news)
        states.update((record.name, record) for record in news)
        on_change(news)

    for record in executor.begin(todo):
        note([record])
        if ending():
            break
    stopping = False
    awaited = ["queued", "running", "waiting"]
    while any(record.state in awaited for record in states.values()):
        if ending() and not stopping:
            stopping = True
            awaited.remove("waiting")
            executor.stop()
        note(executor.poll())
        sleep(POLL_S)
