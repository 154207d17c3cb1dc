"""What run folders say of themselves, without a coordinator; a folder is read again when its files have changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from msgspec import Struct
from pydantic import JsonValue

from remuda.config.secrets import masked
from remuda.page.numbers import finite
from remuda.page.run_end import ended
from remuda.page.run_ids import RunIds, UnknownRunError
from remuda.plotting.groups import by_experiment
from remuda.plotting.runs import Run, described
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import json_of, open_regular, read_bounded
from remuda.sweeping.record import FILE as SWEEP_FILE
from remuda.wire.messages import CheckpointRecord, ExperimentState

REFRESH_S = 2.0
"""For so long, at least, a list of all runs is taken for the newest."""
REFRESH_TIMES = 20
"""And for so many times as long as it took to make."""
_MOST_CONFIG_BYTES = 1 << 20
_TAIL_BYTES = 16 << 10
_Stamp = tuple[tuple[int, int], ...]

StoredState = ExperimentState | Literal["unknown"]
"""unknown: nobody has written how the run ended; it goes on, or was killed."""


class StoredRun(Struct, frozen=True, kw_only=True):
    """One run folder."""

    run: str
    """Its id: the path below the runs folder."""
    name: str
    group: str
    """Runs with the same group differ in the seed alone."""
    seed: int | None
    algorithm: str | None
    env: str | None
    sweep: str | None
    """The folder of the sweep that it belongs to, below the runs folder."""
    mode: Literal["serial", "parallel"]
    experiment: str | None
    """The id that its coordinator gave it."""
    state: StoredState
    reason: str | None
    env_step: int
    train_iter: int
    episode: int
    policy_version: int
    wall_s: float
    last_return: float | None
    """Of the newest checkpoint that was evaluated."""
    best_return: float | None
    changed_s: float
    """When its files changed last: seconds since 1970."""


class StoredRuns:
    """All run folders below one folder. For any thread."""

    def __init__(self, ids: RunIds, clock: Callable[[], float] = time.monotonic) -> None:
        self._ids = ids
        self._clock = clock
        self._listing = threading.Lock()
        self._known: dict[str, tuple[_Stamp, _Read]] = {}
        self._listed: list[StoredRun] = []
        self._good_until_s = -1e9
        self._began = False
        self.complete = True
        """Whether the list has all runs."""

    def all(self) -> list[StoredRun]:
        """Those that changed last come first. While one thread makes the list, others get the one before it; only the
        first list is waited for."""
        if self._clock() >= self._good_until_s and self._listing.acquire(blocking=not self._began):
            try:
                begun_s = self._clock()
                if begun_s >= self._good_until_s:  # no other thread has made it meanwhile
                    self._listed = self._list()
                    self._began = True
                    now_s = self._clock()
                    self._good_until_s = now_s + max(REFRESH_S, REFRESH_TIMES * (now_s - begun_s))
            finally:
                self._listing.release()
        return self._listed

    def one(self, run: str) -> StoredRun:
        """One of them, from its folder alone; its group is that of the last list, if it was in it. Raises
        UnknownRunError."""
        self._ids.folder(run)
        read = self._look(run)
        if read is None:
            raise UnknownRunError(f"there is no run {run[:100]!r}")
        listed = next((each for each in self._listed if each.run == run), None)
        group = _groups([read])[run] if listed is None else listed.group
        return _stored(read, group, _Sweeps(self._ids.runs_dir).of(run))

    def settings(self, run: str) -> dict[str, JsonValue]:
        """All settings of a run, with masks in place of secrets. Raises UnknownRunError."""
        self._ids.folder(run)
        read = self._look(run)
        return {} if read is None else dict(read.settings)

    def sweeps(self) -> dict[str, int]:
        """How many runs each sweep has, by its folder."""
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
        sweeps = _Sweeps(self._ids.runs_dir)
        listed = [_stored(each, groups[each.run], sweeps.of(each.run)) for each in reads]
        return sorted(listed, key=lambda each: each.changed_s, reverse=True)

    def _look(self, run: str) -> _Read | None:
        try:
            folder = self._ids.folder(run)
            stamp, changed_s = _stamp(folder)
        except (UnknownRunError, OSError):
            return None  # it was removed just now
        known = self._known.get(run)
        if known is not None and known[0] == stamp:
            return known[1]
        read = _read(run, folder, changed_s)
        self._known[run] = (stamp, read)
        return read


class _Read(Struct, frozen=True, kw_only=True):
    """A folder, without what follows from the others."""

    run: str
    settings: Mapping[str, JsonValue]
    described: Run
    mode: Literal["serial", "parallel"]
    experiment: str | None
    end: tuple[ExperimentState, str] | None
    last: CheckpointRecord | None
    last_return: float | None
    best_return: float | None
    changed_s: float


def _watched(folder: RunFolder) -> tuple[Path, ...]:
    return (folder.config_json, folder.index, folder.commander_log, folder.serial_evaluator_log, folder.progress)


def _stamp(folder: RunFolder) -> tuple[_Stamp, float]:
    """What tells whether a folder has changed, and when it did."""
    stamps: list[tuple[int, int]] = []
    newest_ns = 0
    for path in _watched(folder):
        try:
            status = os.stat(path)
        except OSError:
            stamps.append((0, 0))
            continue
        stamps.append((status.st_mtime_ns, status.st_size))
        newest_ns = max(newest_ns, status.st_mtime_ns)
    return tuple(stamps), newest_ns / 1e9


def _read(run: str, folder: RunFolder, changed_s: float) -> _Read:
    settings = _settings(folder)
    serial = not folder.commander_log.exists() and folder.serial_tb.exists()
    try:
        index = CheckpointIndex(folder.ckpt, follow_link=False)
        records, best = index.records, index.best
    except (CheckpointIndexError, OSError):
        records, best = (), None
    evaluated = [record for record in records if record.reward is not None]
    return _Read(
        run=run,
        settings=settings,
        described=described(folder.root, settings, {}),
        mode="serial" if serial else "parallel",
        experiment=_experiment(folder),
        end=_end(folder.serial_evaluator_log if serial else folder.commander_log),
        last=max(records, key=lambda record: (record.env_step, record.train_iter), default=None),
        last_return=None if not evaluated else finite(evaluated[-1].reward),
        best_return=None if best is None else finite(best.reward),
        changed_s=changed_s,
    )


def _stored(read: _Read, group: str, sweep: str | None) -> StoredRun:
    settings, last = read.settings, read.last
    seed, name = settings.get("seed"), settings.get("name")
    return StoredRun(
        run=read.run,
        name=name if isinstance(name, str) else read.run.rpartition("/")[2],
        group=group,
        seed=seed if isinstance(seed, int) else None,
        algorithm=_text(settings, "policy", "type"),
        env=_text(settings, "env", "id") or _text(settings, "env", "make"),
        sweep=sweep,
        mode=read.mode,
        experiment=read.experiment,
        state="unknown" if read.end is None else read.end[0],
        reason=None if read.end is None else read.end[1],
        env_step=0 if last is None else last.env_step,
        train_iter=0 if last is None else last.train_iter,
        episode=0 if last is None else last.episode,
        policy_version=0 if last is None else last.policy.version,
        wall_s=0.0 if last is None else last.wall_s,
        last_return=read.last_return,
        best_return=read.best_return,
        changed_s=read.changed_s,
    )


def _text(settings: Mapping[str, JsonValue], section: str, key: str) -> str | None:
    inside = settings.get(section)
    value = inside.get(key) if isinstance(inside, dict) else None
    return value if isinstance(value, str) else None


def _settings(folder: RunFolder) -> dict[str, JsonValue]:
    """Of config.json; none if it cannot be read."""
    try:
        content = json_of(read_bounded(folder.config_json, most_bytes=_MOST_CONFIG_BYTES, follow_link=False))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    hidden = masked(cast("JsonValue", content))
    assert isinstance(hidden, dict), "masking keeps what a value is"
    hidden.pop("exp_name", None)
    return hidden


def _experiment(folder: RunFolder) -> str | None:
    """The experiment's id, from the name of the policy file."""
    try:
        names = sorted(os.listdir(folder.policy))
    except OSError:
        return None
    found = [name for name in names if name.startswith("policy_") and not name.endswith(".lock")]
    return found[-1].removeprefix("policy_").rpartition("_")[0] if found else None


def _end(log: Path) -> tuple[ExperimentState, str] | None:
    try:
        with open_regular(log, follow_link=False) as file:
            size = os.fstat(file.fileno()).st_size
            tail = os.pread(file.fileno(), _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
    except OSError:
        return None
    return ended(tail.decode("utf-8", "replace"))


def _groups(reads: Sequence[_Read]) -> dict[str, str]:
    """The label of each run's group, by its id."""
    of_root = {each.described.root: each.run for each in reads}
    groups = by_experiment([each.described for each in reads])
    return {of_root[run.root]: group.label for group in groups for run in group.runs}


class _Sweeps:
    """Finds the sweep that a run belongs to; looks once into each folder."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._is_sweep: dict[str, bool] = {}

    def of(self, run: str) -> str | None:
        parts = run.split("/")[:-1]
        above = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
        return next((folder for folder in above if self._look(folder)), None)

    def _look(self, folder: str) -> bool:
        if folder not in self._is_sweep:
            self._is_sweep[folder] = (self._runs_dir / folder / SWEEP_FILE).is_file()
        return self._is_sweep[folder]
