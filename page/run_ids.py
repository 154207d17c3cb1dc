"""Ids of runs in requests: the path of a run folder below the runs folder."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from remuda.logbook.tail import policies
from remuda.storage.run_folder import RunFolder, folder_of_policy

MOST_RUNS = 10_000
MOST_DEPTH = 5
"""Most folder levels from the runs folder to a run, including the run: runs of a sweep have three."""
MOST_FOLDERS = 20_000
"""Most folders scanned in a search for runs; a runs folder may hold much else, for instance /tmp."""
_LONGEST_ID = 1_000
_OF_POLICY = "//"
"""Separator before the name of one of several policies; never part of a path."""


class UnknownRunError(Exception):
    """No such run folder below the runs folder."""


class RunIds:
    """The run folders below one folder. Links out of the folder are never followed."""

    def __init__(self, runs_dir: Path, depth: int = MOST_DEPTH) -> None:
        """Set the greatest `depth` of runs; 1 finds only runs directly in the folder."""
        self.runs_dir = Path(os.path.abspath(runs_dir))
        self._depth = depth

    def folder(self, run: str) -> RunFolder:
        """Return the folder of the run with this id, or of its policy in the id. Raises UnknownRunError."""
        run, mark, policy = run.partition(_OF_POLICY)
        parts = run.split("/")
        if len(run) > _LONGEST_ID or len(parts) > self._depth or not all(_is_name(part) for part in parts):
            raise UnknownRunError(f"{run[:100]!r} is not the id of a run")
        root = self.runs_dir.joinpath(*parts)
        try:
            inside = root.resolve().is_relative_to(self.runs_dir.resolve())
            there = inside and _is_run(root)
        except (OSError, RuntimeError, ValueError):  # a link to itself, an impossible file name
            there = False
        if not there:
            raise UnknownRunError(f"there is no run {run[:100]!r}")
        if mark and policy not in policies(RunFolder(root).log):
            raise UnknownRunError(f"the run {run[:100]!r} has no policy {policy[:100]!r}")
        return folder_of_policy(root, policy)

    def each_policy(self, run: str) -> list[str]:
        """Return the ids of all policies of a run with several policies; otherwise the id itself. Raises
        UnknownRunError."""
        names = [] if _OF_POLICY in run else policies(self.folder(run).log)
        return [of_policy(run, name) for name in names] or [run]

    def id_of(self, run_dir: str) -> str | None:
        """Return the id of the run in this folder; None outside of the runs folder."""
        path = Path(os.path.abspath(run_dir))
        for runs_dir in (self.runs_dir, self.runs_dir.resolve()):
            if runs_dir in path.parents:
                run = path.relative_to(runs_dir).as_posix()
                return run if all(_is_name(part) for part in run.split("/")) else None
        return None

    def found(self) -> tuple[list[str], bool]:
        """Return the ids of the run folders, upper folders first, and True for a complete list: at most MOST_RUNS among
        MOST_FOLDERS. Skips the insides of runs, folders with a dot in front, and names that are no UTF-8."""
        runs: list[str] = []
        above = deque([(self.runs_dir, "", 1)])
        looked = 0
        while above:
            folder, prefix, depth = above.popleft()
            for entry in _folders(folder):
                if looked == MOST_FOLDERS or len(runs) == MOST_RUNS:
                    return runs, False
                looked += 1
                run = prefix + entry.name
                if _is_run(Path(entry.path)):
                    runs.append(run)
                elif depth < self._depth:
                    above.append((Path(entry.path), f"{run}/", depth + 1))
        return runs, True


def of_policy(run: str, policy: str) -> str:
    """Return the id of one of several policies of a run."""
    return f"{run}{_OF_POLICY}{policy}"


def whole_run(id: str) -> str:
    """Return the id without the policy."""
    return id.partition(_OF_POLICY)[0]


def _is_run(root: Path) -> bool:
    """Return True for a folder with a config.json that is not a link."""
    try:
        return stat.S_ISREG(os.lstat(RunFolder(root).config_json).st_mode)
    except OSError:
        return False


def _is_name(part: str) -> bool:
    """True for a name of a folder that can be part of an id: a name that is no UTF-8 fits in no answer."""
    is_utf8 = not any("\ud800" <= letter <= "\udfff" for letter in part)
    return bool(part) and not part.startswith(".") and "\0" not in part and is_utf8


def _folders(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_name(entry.name) and entry.is_dir(follow_symlinks=False):
                    yield entry
    except OSError:
        return
