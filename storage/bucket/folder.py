"""The local folder of an address: a run, or the runs folder of a coordinator with all of its runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from remuda.storage.ownership import Ownership
from remuda.storage.run_folder import RUNS_LIST, RUNS_OWNER, RunFolder
from remuda.storage.untrusted import json_of, read_bounded

_MOST_CONFIG_BYTES = 16 << 20
_CONFIGS_KEPT = 4_096


class Settings(msgspec.Struct, frozen=True):
    """The section `storage` of a run's config."""

    ship_interval_s: float = 30.0
    payloads: str = "all"
    last_copy_s: float = 300.0


class _Config(msgspec.Struct, frozen=True):
    storage: Settings = Settings()


@dataclass(frozen=True)
class LocalFolder:
    """A run folder, or the runs folder of a coordinator."""

    root: Path
    has_runs: bool = False
    """True for a runs folder."""

    @property
    def what(self) -> str:
        """The kind of folder, in words."""
        return "the runs of a coordinator" if self.has_runs else "a run"

    @property
    def main(self) -> Path:
        """The first file of such a folder."""
        return self.root / RUNS_LIST if self.has_runs else RunFolder(self.root).config_json

    def require_no_owner(self) -> None:
        """Raise FolderOwnedError while a process of this machine has the folder open."""
        for owner in (self.root / RUNS_OWNER, RunFolder(self.root).owner):
            if owner.exists():
                Ownership(owner).release()

    def settings(self) -> Settings:
        """Return the settings of the run; of several running runs, the shortest interval and the longest patience."""
        if not self.has_runs:
            return settings_of(self.root)
        runs = [settings_of(run) for run in _running(self.root)] or [Settings()]
        return Settings(min(one.ship_interval_s for one in runs), last_copy_s=max(one.last_copy_s for one in runs))


def settings_of(run: Path) -> Settings:
    """Return the settings of a run; a config that cannot be read has the defaults."""
    path = RunFolder(run).config_json
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return Settings()


@lru_cache(_CONFIGS_KEPT)
def _read(config: Path, changed_ns: int) -> Settings:
    return msgspec.convert(json_of(read_bounded(config, most_bytes=_MOST_CONFIG_BYTES)), _Config).storage


def _running(root: Path) -> Iterator[Path]:
    """Yield the runs in a folder that a process has open."""
    for folder, folders, names in os.walk(root):
        run = RunFolder(Path(folder))
        if run.config_json.name in names:
            folders.clear()
            if run.owner.name in names:
                yield run.root
