"""Prepares a run folder: makes a new folder, or refuses, resumes, empties or renames an existing one."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal

from remuda.config.errors import Error
from remuda.storage.lock import Ownership
from remuda.storage.run_folder import PolicyFolder, RunFolder

Mode = Literal["serial", "parallel"]
OnExists = Literal["error", "resume", "force", "rename"]

REPLACED = ".replaced"
"""Folder inside the run folder for old files: `force` moves the files into a new folder with the date."""

_PROBE_BYTES = 64 << 10
"""A run cannot begin with less free space."""


class RunFolderError(Error):
    """The folder cannot be used as requested; the message has the reason and the remedy."""


def submitted_folder(runs_dir: Path, run_dir: str) -> Path:
    """Return the folder that a client names, absolute or relative to the runs folder. Raises RunFolderError if it is
    outside the runs folder, by name or after following links: clients must not make a coordinator write or move
    anything else."""
    runs = Path(os.path.abspath(runs_dir))
    root = Path(os.path.abspath(runs / run_dir))
    if runs not in root.parents and runs.resolve() not in root.resolve().parents:
        raise RunFolderError(
            f"the run folder {root} is not in the coordinator's runs folder {runs}: choose one inside it, or leave out "
            "--run-dir"
        )
    return root


def check(root: Path, on_exists: OnExists, *, mode: Mode) -> None:
    """Raise RunFolderError if `prepare` would; change nothing."""
    entries = _entries(root)
    _check_writable(root)
    if on_exists == "resume":
        _check_resumable(root, exists=bool(entries), mode=mode)
    elif entries and on_exists == "error":
        raise RunFolderError(_occupied(root))
    elif entries and on_exists == "force":
        _check_replaceable(root, entries)


def prepare(
    root: Path,
    on_exists: OnExists,
    *,
    mode: Mode,
    now: datetime,
    by: str | None = None,
    policies: Sequence[str] = (),
) -> RunFolder:
    """Make the folders of a run and return their paths; with `rename` the run folder is not `root`.

    An existing empty directory counts as missing. `now` (local time) is the date in the names of `force` and `rename`.
    `by` is the experiment of the new run. It leaves a mark, which is removed when the run is in the list of runs: if
    the coordinator dies before, the same experiment continues in the same folder. Each of several `policies`, by name,
    gets folders of its own. Raises RunFolderError if `on_exists` does not permit the folder, and FolderOwnedError if
    `force` would move away files of a run that a process has open; nothing is changed then.
    """
    begun = None if by is None else _begun(root, on_exists, by)
    if begun is None:
        check(root, on_exists, mode=mode)
        root = _make_room(root, on_exists, now=now)
    else:
        root = begun
    run = RunFolder(root)
    try:
        make_private(root)
        if on_exists != "resume" and begun is None:
            _claim(run, by)
        owners: list[PolicyFolder | RunFolder] = [PolicyFolder(root, name) for name in policies]
        for own in owners or [run]:
            for folder in own.folders(serial=mode == "serial"):
                folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{root} cannot be made: {error.strerror}; choose another run folder") from error
    return run


def _check_writable(root: Path) -> None:
    """Raise RunFolderError if the disk is full or read-only, before anything is started."""
    place = next(path for path in (root, *root.parents) if os.path.lexists(path))
    try:
        with TemporaryFile(dir=place) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        room = "make room there, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise RunFolderError(
            f"{root} cannot be made: {error.strerror} (in {place}); {room}choose another run folder (--run-dir)"
        ) from error


def discard(root: Path, by: str) -> None:
    """Remove all files of this experiment, which will not be started.

    Keeps files that `force` has moved away, and a folder of another experiment or with a checkpoint. Raises OSError,
    and FolderOwnedError if a process has the run open.
    """
    run = RunFolder(root)
    if not run.beginner(by).exists() or _has_checkpoints(run):
        return
    Ownership(run.owner).release()
    for name in _entries(root):
        path = root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    with contextlib.suppress(OSError):  # files that were moved away are in it
        root.rmdir()


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700; existing folders are not changed. Raises OSError."""
    for missing in reversed([path for path in (folder, *folder.parents) if not os.path.lexists(path)]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)  # raises where it is a file


def _begun(root: Path, on_exists: OnExists, by: str) -> Path | None:
    """Return the folder in which this experiment has begun before, without a checkpoint: `root`, or with `rename`
    another."""
    marks = [RunFolder(root).beginner(by)]
    if on_exists == "rename":
        marks += root.parent.glob(f"{glob.escape(root.name)}_*/{marks[0].name}")
    runs = [RunFolder(mark.parent) for mark in marks if mark.exists()]
    return next((run.root for run in runs if not _has_checkpoints(run)), None)


def _has_checkpoints(run: RunFolder) -> bool:
    """Of whichever policy."""
    return run.index.exists() or any(run.ckpt.glob("*/index.json"))


def _make_room(root: Path, on_exists: OnExists, *, now: datetime) -> Path:
    """Return the folder for the run: `root`, from which `force` moves the old files away, or with `rename` another."""
    entries = _entries(root)
    if entries and on_exists == "force":
        owner = RunFolder(root).owner
        if owner.exists():
            Ownership(owner).release()  # raises where a process has the run open
        move_away(root, _entries(root), now=now)
    elif entries and on_exists == "rename":
        return free_name(root.parent, f"{root.name}_{_stamp(now)}")
    return root


def _stamp(now: datetime) -> str:
    return now.strftime("%y%m%d_%H%M%S")


def _entries(root: Path) -> list[str]:
    """Return the names of the files in the folder, without the files that an earlier `force` moved away."""
    if not os.path.lexists(root):
        return []
    if not root.is_dir():
        raise RunFolderError(f"{root} is not a directory: choose another run folder")
    return sorted(entry for entry in os.listdir(root) if entry != REPLACED)


def _occupied(root: Path) -> str:
    if not RunFolder(root).config_json.exists():
        return (
            f"{root} is not empty and is not a run folder: choose another folder, or add a date to its name with "
            '--on-exists rename (in Python: on_exists="rename")'
        )
    return (
        f"{root} already holds a run: continue it with --resume, start over with --force (its files are moved to "
        f"{root / REPLACED}), keep it and add a date to the new name with --on-exists rename, or choose another folder "
        '(in Python: on_exists="resume", "force", "rename")'
    )


def _check_replaceable(root: Path, entries: list[str]) -> None:
    """Refuse to move foreign files away, for instance a home folder. A run without a config.json died early, and has
    early files only."""
    run = RunFolder(root)
    if run.config_json.is_file() and run.log.is_dir():
        return
    begun = {path.relative_to(root).parts[0] for path in run.folders(serial=False)}
    begun |= {path.name for path in (run.owner, run.total_config, run.formatted_total_config)}
    beginnings = (run.beginner("").name, run.journal.name)
    others = [name for name in entries if name not in begun and not name.startswith(beginnings)]
    if others:
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise RunFolderError(
            f"{root} is not a run folder (config.json and log/) and holds {shown}: --force moves only runs away; "
            "choose another folder, or add a date to its name with --on-exists rename"
        )


def _check_resumable(root: Path, *, exists: bool, mode: Mode) -> None:
    if not exists:
        raise RunFolderError(f"{root} cannot be resumed: there is no run; start it without --resume")
    run = RunFolder(root)
    if not run.config_json.is_file():
        raise RunFolderError(f"{root} cannot be resumed: it has no config.json, so it is not a run folder")
    other: Mode = "parallel" if mode == "serial" else "serial"
    marker = {"serial": run.serial_tb, "parallel": run.commander_tb}[other].relative_to(run.log)
    if (run.log / marker).exists() or any(run.log.glob(f"*/{marker}")):  # of one policy, or of several
        raise RunFolderError(
            f"{root} cannot be resumed in {mode} mode: it was started in {other} mode; resume it in that mode, "
            "or start a new run from its weights with --initialize-from"
        )


def move_away(root: Path, entries: Sequence[str], *, now: datetime) -> None:
    """Move these entries of a folder into REPLACED inside. The files that mark a run go last, so a half moved folder is
    still a run."""
    (root / REPLACED).mkdir(exist_ok=True)
    away = free_name(root / REPLACED, _stamp(now))
    away.mkdir()
    last = (RunFolder(root).log.name, RunFolder(root).config_json.name)
    for entry in sorted(entries, key=lambda entry: (entry in last, entry)):
        os.rename(root / entry, away / entry)


def free_name(parent: Path, name: str) -> Path:
    """Return a path that does not exist in `parent`: of this name, or with a number behind the name."""
    candidate, count = parent / name, 1
    while os.path.lexists(candidate):
        count += 1
        candidate = parent / f"{name}_{count}"
    return candidate


def _claim(run: RunFolder, by: str | None) -> None:
    """Make log/ exclusively: if two runs start in the same empty folder at the same time, the second is refused."""
    mark = None if by is None else run.beginner(by)
    if mark is not None:
        mark.touch()
    try:
        run.log.mkdir()
    except FileExistsError:
        if mark is not None:
            mark.unlink(missing_ok=True)
        raise RunFolderError(f"{run.root} was taken by another run at this moment: choose another folder") from None
