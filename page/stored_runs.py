"""Facts of run folders, without a coordinator; a folder is read again after a change of its files."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace
from pydantic import JsonValue

from remuda.client.plots.curves import by_settings
from remuda.client.plots.runs import Run, described
from remuda.client.stored_run import Learned, is_serial, joined, policy_folders, read_end, read_learned
from remuda.client.sweeps.record import FILE as SWEEP_FILE
from remuda.config.plain import masked
from remuda.page.growing import finite
from remuda.page.run_ids import RunIds, UnknownRunError, of_policy, whole_run
from remuda.storage.checkpoint_index import NewTask
from remuda.storage.notes import read_notes
from remuda.storage.run_folder import RunFolder, policy_of
from remuda.storage.untrusted import json_of, read_bounded
from remuda.training.commander.together import mean_return
from remuda.wire.messages import ExperimentState

_MOST_CONFIG_BYTES = 1 << 20
_REPLACED = "Its config has characters that are no text (lone surrogates): \N{REPLACEMENT CHARACTER} stands for each."
Stamp = tuple[tuple[int, int], ...]
StoredState = ExperimentState | Literal["unknown"]
"""unknown: the end is not recorded; the run continues, or was killed."""
Tone = Literal["good", "wait", "bad", "still"]


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
    damage: str = ""
    """Sentence about replaced characters of the config; empty without any."""


class StoredRun(RunRow, frozen=True, kw_only=True):
    """A run folder; group and sweep depend on other folders, and are filled in later."""

    run: str
    settings: Mapping[str, JsonValue]
    described: Run
    tasks: tuple[NewTask, ...] = ()
    """Tasks of the evaluations, with begins: several after a resume with another task."""


def _watched(folder: RunFolder) -> list[Path]:
    files = [folder.config_json, folder.notes]
    for one in policy_folders(folder):
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
    (settings, replaced), members, notes = _settings(folder), policy_folders(folder), read_notes(folder)
    lead = members[0]
    state, reason = read_end(lead) or ("unknown", None)
    learned = [read_learned(each) for each in members]
    rows, counters = [_row(run, each) for each in learned], joined(learned)
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
        mode="serial" if is_serial(lead) else "parallel",
        experiment=_experiment(lead),
        state=state,
        reason=reason,
        env_step=counters.env_step,
        train_iter=counters.train_iter,
        episode=counters.episode,
        policy_version=counters.policy_version,
        wall_s=counters.wall_s,
        last_return=mean_return([each.last_return for each in rows]),
        best_return=mean_return([each.best_return for each in rows]),
        changed_s=changed_s,
        policies=[row for row in rows if row.name],
        note=notes.note,
        tags=notes.tags,
        tasks=learned[0].tasks,  # equal for all policies
        damage=_REPLACED if replaced else "",
    )


def _row(run: str, learned: Learned) -> PolicyRow:
    last = learned.last
    return PolicyRow(
        name=learned.policy,
        run=of_policy(run, learned.policy),
        train_iter=0 if last is None else last.train_iter,
        episode=0 if last is None else last.episode,
        policy_version=0 if last is None else last.policy.version,
        last_return=finite(learned.last_return),
        best_return=finite(learned.best_return),
    )


def _text(settings: Mapping[str, JsonValue], section: str, key: str) -> str | None:
    inside = settings.get(section)
    value = inside.get(key) if isinstance(inside, dict) else None
    return value if isinstance(value, str) else None


def _settings(folder: RunFolder) -> tuple[dict[str, JsonValue], bool]:
    """Return the settings in config.json, empty for an unreadable file; and True for replaced characters."""
    try:
        content = json_of(read_bounded(folder.config_json, most_bytes=_MOST_CONFIG_BYTES, follow_link=False))
    except (OSError, ValueError):
        return {}, False
    if not isinstance(content, dict):
        return {}, False
    shown = _without_lone_surrogates(cast("JsonValue", content))
    hidden = masked(shown)
    assert isinstance(hidden, dict), "masking keeps what a value is"
    hidden.pop("exp_name", None)
    return hidden, shown is not content


def _without_lone_surrogates(value: JsonValue) -> JsonValue:
    """Return the value, with replacement characters for lone surrogates: JSON can escape them, as in a name that is no
    UTF-8, and no answer with them can be sent."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        replaced: JsonValue = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        return replaced
    return value


def _experiment(folder: RunFolder) -> str | None:
    """The experiment's id, from the name of the policy file."""
    try:
        names = sorted(os.listdir(folder.policy))
    except OSError:
        return None
    found = [name for name in names if name.startswith("policy_") and not name.endswith(".lock")]
    return found[-1].removeprefix("policy_").rpartition("_")[0] if found else None


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
    groups = by_settings([each.described for each in reads])
    return {of_root[run.root]: group.label for group in groups for run in group.runs}


def _sweep_of(runs_dir: Path, run: str, known: dict[str, bool]) -> str | None:
    """Find the sweep of a run; `known` remembers the folders of sweeps."""
    for folder in map(str, PurePosixPath(run).parents[:-1]):
        if folder not in known:
            known[folder] = (runs_dir / folder / SWEEP_FILE).is_file()
        if known[folder]:
            return folder
    return None
