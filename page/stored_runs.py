"""Facts of all run folders, without a coordinator; a folder is read again after a change of its files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import replace
from pydantic import JsonValue

from remuda.client.plots.curves import by_experiment
from remuda.client.sweeps.record import FILE as SWEEP_FILE
from remuda.page.run_ids import RunIds, UnknownRunError, whole_run
from remuda.page.stored_run import Stamp, StoredRun, read_folder, stamp_of
from remuda.storage.run_folder import policy_of

REFRESH_S = 2.0
"""Least seconds during which a list of all runs counts as new."""
REFRESH_TIMES = 20
"""A list counts as new for at least this multiple of the seconds spent on making the list."""


class StoredRuns:
    """All run folders below one folder. Thread-safe."""

    def __init__(self, ids: RunIds, clock: Callable[[], float] = time.monotonic) -> None:
        self._ids = ids
        self._clock = clock
        self._listing = threading.Lock()
        self._known: dict[str, tuple[Stamp, StoredRun]] = {}
        self._listed: list[StoredRun] = []
        self._good_until_s = -1e9
        self._began = False
        self.complete = True
        """True if the list has all runs."""

    def all(self) -> list[StoredRun]:
        """Return the runs, recently changed first. While one thread makes the list, other threads receive the former
        list; only the first list blocks."""
        if self._clock() >= self._good_until_s and self._listing.acquire(blocking=not self._began):
            try:
                begun_s = self._clock()
                if begun_s >= self._good_until_s:  # not made by another thread meanwhile
                    self._listed = self._list()
                    self._began = True
                    now_s = self._clock()
                    self._good_until_s = now_s + max(REFRESH_S, REFRESH_TIMES * (now_s - begun_s))
            finally:
                self._listing.release()
        return self._listed

    def one(self, run: str) -> StoredRun:
        """Return a run or a policy from the folder alone, with the group in the last list. Raises
        UnknownRunError."""
        if whole_run(run) != run:
            return self._policy(run)
        self._ids.folder(run)
        read = self._look(run)
        if read is None:
            raise UnknownRunError(f"there is no run {run[:100]!r}")
        listed = next((each for each in self._listed if each.run == run), None)
        group = _groups([read])[run] if listed is None else listed.group
        return replace(read, group=group, sweep=_sweep_of(self._ids.runs_dir, run, {}))

    def _policy(self, id: str) -> StoredRun:
        run, name = self.one(whole_run(id)), policy_of(self._ids.folder(id))
        return replace(run, run=id, name=f"{run.name}, {name}", group=f"{run.group}, {name}")

    def settings(self, run: str) -> dict[str, JsonValue]:
        """All settings of a run, with masks in place of secrets. Raises UnknownRunError."""
        self._ids.folder(run)
        read = self._look(run)
        return {} if read is None else dict(read.settings)

    def sweeps(self) -> dict[str, int]:
        """Return the number of runs of each sweep, by folder."""
        found: dict[str, int] = {}
        for each in self.all():
            if each.sweep is not None:
                found[each.sweep] = found.get(each.sweep, 0) + 1
        return found

    def _list(self) -> list[StoredRun]:
        ids, self.complete = self._ids.found()
        reads = [found for run in ids if (found := self._look(run)) is not None]
        self._known = {each.run: self._known[each.run] for each in reads}
        groups = _groups(reads)
        sweeps: dict[str, bool] = {}
        listed = [
            replace(each, group=groups[each.run], sweep=_sweep_of(self._ids.runs_dir, each.run, sweeps))
            for each in reads
        ]
        return sorted(listed, key=lambda each: each.changed_s or 0.0, reverse=True)

    def _look(self, run: str) -> StoredRun | None:
        try:
            folder = self._ids.folder(run)
            stamp, changed_s = stamp_of(folder)
        except (UnknownRunError, OSError):
            return None  # removed meanwhile
        known = self._known.get(run)
        if known is not None and known[0] == stamp:
            return known[1]
        read = read_folder(run, folder, changed_s)
        self._known[run] = (stamp, read)
        return read


def _groups(reads: Sequence[StoredRun]) -> dict[str, str]:
    """Return the label of each run's group, by run id."""
    of_root = {each.described.root: each.run for each in reads}
    groups = by_experiment([each.described for each in reads])
    return {of_root[run.root]: group.label for group in groups for run in group.runs}


def _sweep_of(runs_dir: Path, run: str, known: dict[str, bool]) -> str | None:
    """Find the sweep of a run; `known` remembers the folders of sweeps."""
    for folder in map(str, PurePosixPath(run).parents[:-1]):
        if folder not in known:
            known[folder] = (runs_dir / folder / SWEEP_FILE).is_file()
        if known[folder]:
            return folder
    return None
