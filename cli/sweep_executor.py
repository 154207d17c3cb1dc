"""The local processes or the herd that run a sweep, and the checks before the start."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from remuda.cli.connecting import connected
from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import ResolvedRun
from remuda.storage.existing_folder import Mode

if TYPE_CHECKING:
    from remuda.client.client import Client
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
        raise InputError("--jobs works with --on local only; a herd makes as many runs as it has workers for")


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
