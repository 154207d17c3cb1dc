"""Facts of run folders, without a coordinator; a folder is read again after a change of its files."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace
from pydantic import JsonValue

from remuda.client.plots.curves import by_experiment
from remuda.client.plots.runs import Run, described
from remuda.client.sweeps.record import FILE as SWEEP_FILE
from remuda.config.plain import masked
from remuda.logbook.tail import policies
from remuda.page.growing import finite
from remuda.page.run_ids import RunIds, UnknownRunError, of_policy, whole_run
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError, NewTask
from remuda.storage.notes import read_notes
from remuda.storage.run_folder import RunFolder, folder_of_policy, policy_of
from remuda.storage.untrusted import json_of, open_regular, read_bounded
from remuda.training.commander.end import ON_REQUEST, REACHED, End
from remuda.training.commander.together import mean_return
from remuda.wire.messages import CheckpointRecord, ExperimentState

_RECORD = re.compile(r"^\[\d{4}-\d\d-\d\d [^\]]*\]\[[^\]]*\]\[[A-Z]+\] ", re.MULTILINE)
_OVER = re.compile(r"the run is over after [0-9.]+ s: (.*)", re.DOTALL)
_BY_HAND = "a client asked"
"""Reason of a stop by hand, which explains nothing."""
_LAST_RECORDS = 3
"""Most records at the end of a log with the record of the end among them; two may follow, for instance about a file."""
_MOST_CONFIG_BYTES = 1 << 20
_TAIL_BYTES = 16 << 10
Stamp = tuple[tuple[int, int], ...]
StoredState = ExperimentState | Literal["unknown"]
"""unknown: the end is not recorded; the run continues, or was killed."""
Tone = Literal["good", "wait", "bad", "still"]


def ended(tail: str) -> tuple[ExperimentState, str] | None:
    """Return state and reason if one of the last records of the log ends the run. The log of a resumed run continues
    after such a record."""
    for record in _RECORD.split(tail)[-_LAST_RECORDS:][::-1]:
        found = _OVER.match(record)
        if found is not None:
            reason = _reason(found[1].strip())
            because = found[1].strip().removeprefix(f"{ON_REQUEST}; ")
            shown = because if reason == ON_REQUEST and not because.startswith(_BY_HAND) else reason
            return End(reason, "").state, shown
    return None


def _reason(text: str) -> str:
    """Return the reason in `reason; explanation`, or a whole sentence; earlier versions wrote the sentence twice."""
    first = text.partition(";")[0]
    if first in REACHED or first == ON_REQUEST:
        return first
    return text[: len(text) // 2 - 1] if text[: len(text) // 2 - 1] == text[len(text) // 2 + 1 :] else text


class PolicyRow(Struct, frozen=True, kw_only=True):
    """One of several policies of a run. See PolicyStatus."""

    name: str
    run: str | None
    """Id for requests of curves, timeline and checkpoints."""
    train_iter: int = 0
    episode: int = 0
    policy_version: int = 0
    last_return: float | None = None
    best_return: float | None = None
    train_iters_per_s: float | None = None
    policy_lag: int | None = None
    samples_per_insert: float | None = None


class RunRow(Struct, frozen=True, kw_only=True):
    """A run in the list of the page. See ExperimentStatus. With several policies counters are sums; the returns are
    means, if every policy has a return."""

    run: str | None
    """Id: the path below the runs folder; None outside of the runs folder."""
    name: str
    group: str
    """Runs with the same group differ in the seed alone."""
    seed: int | None = None
    algorithm: str | None = None
    env: str | None = None
    sweep: str | None = None
    """Folder of the run's sweep, below the runs folder."""
    mode: Literal["serial", "parallel"] = "parallel"
    experiment: str | None = None
    """Experiment id at the coordinator."""
    state: StoredState = "unknown"
    reason: str | None = None
    env_step: int = 0
    train_iter: int = 0
    episode: int = 0
    policy_version: int = 0
    wall_s: float = 0.0
    last_return: float | None = None
    """Return of the newest evaluated checkpoint."""
    best_return: float | None = None
    changed_s: float | None = None
    """Last change of the files: seconds since 1970."""
    policies: list[PolicyRow] = []
    """Several policies; otherwise empty."""
    note: str = ""
    """Note of users about the run."""
    tags: list[str] = []
    why: str | None = None
    """Reason of the current wait."""
    priority: int | None = None
    env_steps_per_s: float | None = None
    train_iters_per_s: float | None = None
    policy_lag: int | None = None
    samples_per_insert: float | None = None
    tone: Tone = "still"
    says: str = ""
    """Sentence about the state, with the reason of a wait."""
    live: bool = False
    """True for current numbers of the coordinator."""


class StoredRun(RunRow, frozen=True, kw_only=True):
    """A run folder; group and sweep depend on other folders, and are filled in later."""

    run: str
    settings: Mapping[str, JsonValue]
    described: Run
    tasks: tuple[NewTask, ...] = ()
    """Tasks of the evaluations, with begins: several after a resume with another task."""


def _policies(folder: RunFolder) -> list[RunFolder]:
    return [folder_of_policy(folder.root, name) for name in policies(folder.log) or [""]]


def _watched(folder: RunFolder) -> list[Path]:
    files = [folder.config_json, folder.notes]
    for one in _policies(folder):
        files += [one.index, one.commander_log, one.serial_evaluator_log, one.progress]
    return files


def stamp_of(folder: RunFolder) -> tuple[Stamp, float]:
    """Return a stamp that changes with the files of a folder, and the time of the last change."""
    stamps: list[tuple[int, int]] = []
    newest_ns = 0
    for path in _watched(folder):
        try:
            status = os.stat(path)
        except OSError:
            stamps.append((0, 0))
            continue
        stamps.append((status.st_mtime_ns, status.st_size))
        if path != folder.notes:  # a note is not a change of the run
            newest_ns = max(newest_ns, status.st_mtime_ns)
    return tuple(stamps), newest_ns / 1e9


def read_folder(run: str, folder: RunFolder, changed_s: float) -> StoredRun:
    """Read the folder of the run with this id."""
    settings, members, notes = _settings(folder), _policies(folder), read_notes(folder)
    lead = members[0]
    serial = not lead.commander_log.exists() and lead.serial_tb.exists()
    state, reason = _end(lead.serial_evaluator_log if serial else lead.commander_log) or ("unknown", None)
    learned = [_learned(run, one) for one in members]
    rows, last = [row for row, _, _ in learned], [newest for _, newest, _ in learned if newest is not None]
    seed, name = settings.get("seed"), settings.get("name")
    return StoredRun(
        run=run,
        name=name if isinstance(name, str) else run.rpartition("/")[2],
        group="",
        settings=settings,
        described=described(folder.root, settings, {}),
        seed=seed if isinstance(seed, int) else None,
        algorithm=_text(settings, "policy", "type"),
        env=_text(settings, "env", "id") or _text(settings, "env", "make"),
        mode="serial" if serial else "parallel",
        experiment=_experiment(lead),
        state=state,
        reason=reason,
        env_step=max((each.env_step for each in last), default=0),
        train_iter=sum(each.train_iter for each in rows),
        episode=sum(each.episode for each in rows),
        policy_version=sum(each.policy_version for each in rows),
        wall_s=max((each.wall_s for each in last), default=0.0),
        last_return=mean_return([each.last_return for each in rows]),
        best_return=mean_return([each.best_return for each in rows]),
        changed_s=changed_s,
        policies=[row for row in rows if row.name],
        note=notes.note,
        tags=notes.tags,
        tasks=learned[0][2],  # equal for all policies
    )


def _learned(run: str, folder: RunFolder) -> tuple[PolicyRow, CheckpointRecord | None, tuple[NewTask, ...]]:
    """Return the row of a policy, its last checkpoint, and the tasks of its evaluations."""
    name = policy_of(folder)
    try:
        index = CheckpointIndex(folder.ckpt, follow_link=False)
        records, best, tasks = index.records, index.best, index.tasks
    except (CheckpointIndexError, OSError):
        records, best, tasks = (), None, ()
    last = max(records, key=lambda record: (record.env_step, record.train_iter), default=None)
    row = PolicyRow(
        name=name,
        run=of_policy(run, name),
        train_iter=0 if last is None else last.train_iter,
        episode=0 if last is None else last.episode,
        policy_version=0 if last is None else last.policy.version,
        last_return=next((finite(each.reward) for each in reversed(records) if each.reward is not None), None),
        best_return=None if best is None else finite(best.reward),
    )
    return row, last, tasks


def _text(settings: Mapping[str, JsonValue], section: str, key: str) -> str | None:
    inside = settings.get(section)
    value = inside.get(key) if isinstance(inside, dict) else None
    return value if isinstance(value, str) else None


def _settings(folder: RunFolder) -> dict[str, JsonValue]:
    """Return the settings in config.json; empty for an unreadable file."""
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
