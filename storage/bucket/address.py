"""Addresses in object stores, and the local folders that stand for them: of a run, or of all runs of a coordinator."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from remuda.config.errors import Error
from remuda.storage.atomic import write_bytes
from remuda.storage.existing_folder import make_private
from remuda.storage.lock import Ownership
from remuda.storage.run_folder import RUNS_LIST, RUNS_OWNER, RunFolder
from remuda.storage.untrusted import json_of, read_bounded

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,3}(.+)")
_CACHE = "REMUDA_CACHE_DIR"
MARK_END = ".bucket.json"
"""End of the name of the file beside a local folder."""
_MOST_MARK_BYTES = 4_096
_MOST_CONFIG_BYTES = 16 << 20
_CONFIGS_KEPT = 4_096


class BucketError(Error):
    """The run in the bucket cannot be used, read or written as requested; the text has the reason and the remedy."""


class NotShippedError(Error):
    """The run has ended, and its bucket does not have all of it; the text names the folder that has."""


def address_of(given: str | os.PathLike[str]) -> str | None:
    """Return the address of a run, or of a folder of runs, in an object store; None for an ordinary path. A Path has
    lost one slash of the address, and gets the slash back."""
    found = _ADDRESS.fullmatch(os.fspath(given))
    if found is None:
        return None
    scheme, place = found[1], found[2].rstrip("/")
    if ".." in place.split("/"):
        raise BucketError(f"{os.fspath(given)}: an address has no '..'")
    return f"{scheme}://{'/' if scheme == 'file' else ''}{place.lstrip('/')}"


def local_folder(address: str) -> Path:
    """Return the folder on this machine for this address: below $REMUDA_CACHE_DIR, else the user's cache."""
    scheme, _, place = address.partition("://")
    base = os.environ.get(_CACHE) or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "remuda")
    return Path(os.path.abspath(os.path.expanduser(base))) / scheme / place.lstrip("/")


class Mark(msgspec.Struct, frozen=True):
    """Which epoch of a run a local folder holds; a file beside the folder."""

    epoch: int
    owner: str
    address: str
    number: int = 0


def read_mark(root: Path) -> Mark | None:
    """Return the mark of a local folder; None for a folder that is no run of a bucket."""
    try:
        return msgspec.json.decode(read_bounded(_mark_of(root), most_bytes=_MOST_MARK_BYTES), type=Mark)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_mark(root: Path, mark: Mark) -> None:
    """Mark a local folder. Raises OSError."""
    make_private(root.parent)
    write_bytes(_mark_of(root), msgspec.json.encode(mark), durable=False, mode=0o600)


def address_of_folder(run_dir: str | os.PathLike[str]) -> str | None:
    """Return the address that is meant by an address, or by a local folder that stands for one. Raises BucketError."""
    address = address_of(run_dir)
    if address is None:
        mark = read_mark(Path(os.path.abspath(run_dir)))
        address = None if mark is None else mark.address
    return address


def shown(run_dir: str | Path) -> str:
    """Return the name of a run folder for people: the address in a bucket, or else the path."""
    mark = read_mark(Path(run_dir))
    return str(run_dir) if mark is None else mark.address


def _mark_of(root: Path) -> Path:
    return root.parent / f".{root.name}{MARK_END}"


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
