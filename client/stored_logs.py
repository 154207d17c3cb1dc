"""Reads an experiment's logs from its run folder, without a coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from remuda.coordinator.disk.runs_folder import KnownRun, known_runs
from remuda.logbook import tail
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import LogPiece


class NoSuchRunError(Exception):
    """The name fits no run or several runs; the text lists the runs."""


def find_run(runs_dir: Path, experiment: str) -> RunFolder:
    """Find a run by its id, the beginning of its id, its name or its folder's name; among runs with the same name the
    newest.

    Raises NoSuchRunError.
    """
    known = known_runs(runs_dir)
    named = [run.run_dir for run in known if experiment in (run.name, run.run_dir.name)]
    for run_dir in (*named, runs_dir / experiment):
        if experiment and RunFolder(run_dir).config_json.is_file():
            return RunFolder(run_dir)
    return RunFolder(_by_id(runs_dir, known, experiment))


def stored_logs(run: RunFolder, source: str, last_lines: int | None) -> Iterator[LogPiece]:
    """Yield the logs of a source, or the last `last_lines` lines of every file. Raises NoSuchSourceError, OSError."""
    for found in tail.find(run.log, source):
        position = tail.begin(run.log, found.file, last_lines)
        while (piece := tail.read(run.log, position, to_the_end=True)).text:
            position = piece.position
            yield LogPiece(position, tail.label(found.file), piece.text)


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
