"""A copy of a run folder at one moment: hard links to the files, and a copy of the open journal."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from remuda.storage.bucket.address import MARK_END, BucketError, settings_of
from remuda.storage.bucket.generation import File, Part
from remuda.storage.run_folder import RUNS_LIST, RUNS_OWNER, RunFolder

BLOCK_BYTES = 8 << 20
"""Largest part of a file."""
PAGE_BLOCK_BYTES = 256 << 10
"""Parts of the journal, whose pages change in place."""
NO_STAMP = (0, 0, 0)
"""Of a file that is read each time."""
_HEADER_BYTES = 32
"""SQLite's write-ahead log begins with this header, which changes whenever the log starts over."""
_TRIES, _PAUSE_S = 50, 0.05
_STARTS = (".owner", ".seen_", ".sweep", RUNS_OWNER)
_ENDS = (".lock", ".tmp", "-wal", "-shm", "-journal", MARK_END)
_CONNECTION = "connection.json"
"""Files that only living processes of this machine need."""
_WORK = (".shipping", ".restoring")
"""Ends of the names of folders in which copies are made."""
_JOURNAL = "journal.sqlite"
_KEYS = ".keys"
"""The keys of a coordinator: whoever reads the bucket must not be able to command its workers."""


@dataclass(frozen=True)
class Known:
    """A file as last shipped."""

    stamp: tuple[int, int, int]
    """Inode, size and time of the last change: a file with the same stamp is not read again."""
    file: File


@dataclass
class Snapshot:
    """The files of one moment, and the places from which their parts are read until the snapshot is removed."""

    part: Callable[[str, int], Part]
    """Returns the part with this hash and size."""
    files: dict[str, Known] = field(default_factory=dict[str, Known])
    places: dict[str, tuple[Path, int, int]] = field(default_factory=dict[str, tuple[Path, int, int]])
    """By hash: a local file, and the offset and size of the part in there."""

    def content(self, sha256: str) -> bytes:
        """Return the bytes of a part. Raises OSError, also if the file has changed meanwhile."""
        path, offset, size = self.places[sha256]
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise OSError(f"{path} changed while it was read")
        return data


def take(root: Path, staging: Path, former: Mapping[str, Known], part: Callable[[str, int], Part]) -> Snapshot:
    """Copy a run folder, or the runs folder of a coordinator, into the empty folder `staging`, by links; without the
    payload files of runs that leave these out.

    Files are linked before and after the journals are copied, so no file that a journal names is missing: it is at
    worst deleted later, and the link stays. Files newer than the journal are what a crash would leave, too. Likewise a
    coordinator's list of runs is copied before the journals: every listed run has a journal. `part` returns the part
    with a hash and size. Raises OSError, and BucketError for a damaged journal.
    """
    snapshot = Snapshot(part)
    _take_database(RUNS_LIST, root, staging, former, snapshot)
    found: dict[str, os.stat_result] = {}
    for path in _link(root, staging, former, found):
        if path != RUNS_LIST:
            _take_database(path, root, staging, former, snapshot)
    _link(root, staging, former, found)
    for path, status in found.items():
        known, stamp = former.get(path), _stamp(status)
        if known is not None and known.stamp == stamp:
            snapshot.files[path] = known
            continue
        kept = () if known is None else known.file.parts
        parts = _parts(staging / path, status.st_size, kept, BLOCK_BYTES, snapshot)
        snapshot.files[path] = Known(stamp, File(path, stat.S_IMODE(status.st_mode), parts))
    snapshot.files = dict(sorted(snapshot.files.items()))
    return snapshot


def _take_database(path: str, root: Path, staging: Path, former: Mapping[str, Known], snapshot: Snapshot) -> None:
    """Copy a journal or a list of runs, unless it is closed and unchanged since the `former` copy."""
    source, target = root / path, staging / path
    known, stamp = former.get(path), _stamp_of_closed(source)
    if known is not None and stamp != NO_STAMP and known.stamp == stamp:
        snapshot.files[path] = known
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        is_there = copy_database(source, target)
    except BucketError:
        if source.parent == root:
            raise
        is_there = bool(shutil.copyfile(source, target))  # the other runs go on; this one from its last checkpoint
    if is_there:
        parts = _parts(target, target.stat().st_size, (), PAGE_BLOCK_BYTES, snapshot)
        snapshot.files[path] = Known(stamp, File(path, 0o600, parts))


def _stamp_of_closed(database: Path) -> tuple[int, int, int]:
    with contextlib.suppress(FileNotFoundError):
        if not os.path.exists(f"{database}-wal"):
            return _stamp(database.stat())
    return NO_STAMP


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the ordinary files of a folder, by their path inside, except files of living processes, and runs in a
    runs folder that are shipped to addresses of their own."""
    for folder, folders, names in os.walk(root):
        run = RunFolder(Path(folder))
        skipped = {_KEYS, *(name[1:].removesuffix(MARK_END) for name in names if name.endswith(MARK_END))}
        if run.config_json.name in names and settings_of(run.root).payloads == "none":
            skipped.add(run.data.name)
        folders[:] = [name for name in folders if name not in skipped and not name.endswith(_WORK)]
        for name in names:
            path = os.path.join(folder, name)
            if name == _CONNECTION or name.startswith(_STARTS) or name.endswith(_ENDS):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    yield os.path.relpath(path, root), status


def _link(root: Path, staging: Path, former: Mapping[str, Known], found: dict[str, os.stat_result]) -> list[str]:
    """Link files that are not known yet, and note the state of all. Returns the journals, which are not linked."""
    journals: list[str] = []
    for path, status in _walk(root):
        if os.path.basename(path) in (_JOURNAL, RUNS_LIST):
            journals.append(path)
            continue
        known = former.get(path)
        if known is None or known.stamp != _stamp(status):
            with contextlib.suppress(FileNotFoundError):  # deleted at this moment
                status = _linked(root / path, staging / path)
                found[path] = status
        else:
            found[path] = status
    return journals


def _linked(source: Path, target: Path) -> os.stat_result:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # no hard links here
        shutil.copyfile(source, target)
        shutil.copystat(source, target)
    return target.stat()


def _parts(path: Path, size: int, former: tuple[Part, ...], most_bytes: int, snapshot: Snapshot) -> tuple[Part, ...]:
    """Cut the first `size` bytes of a file into parts. A file that has grown keeps its `former` parts, and gets a part
    for the appended bytes; small neighbours are joined, so a log has few parts and is sent few times."""
    with path.open("rb") as file:
        cuts = [*_kept(file.read, former, size)]
        offset = sum(cuts)
        while offset < size:
            cuts.append(min(most_bytes, size - offset))
            offset += cuts[-1]
            while len(cuts) > 1 and cuts[-2] < 2 * cuts[-1] and cuts[-2] + cuts[-1] <= most_bytes:
                cuts[-2:] = [cuts[-2] + cuts[-1]]
        parts: list[Part] = []
        file.seek(0)
        offset = 0
        for cut in cuts:
            data = file.read(cut)
            part = snapshot.part(hashlib.sha256(data).hexdigest(), len(data))
            snapshot.places[part.sha256] = path, offset, len(data)
            offset += len(data)
            parts.append(part)
    return tuple(parts)


def _kept(read: Callable[[int], bytes], former: tuple[Part, ...], size: int) -> Iterator[int]:
    """Yield the sizes of the former parts that the file still begins with."""
    for part in former:
        size -= part.size
        if size < 0 or hashlib.sha256(read(part.size)).hexdigest() != part.sha256:
            return
        yield part.size


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def copy_database(source: Path, target: Path) -> bool:
    """Copy an SQLite database that another process has open and writes; False without a database.

    The owner locks its database exclusively, so the files are read without SQLite: first the database, then the
    write-ahead log. While the log has not started over in between, the log has every page that a checkpoint wrote to
    the database meanwhile, up to its last commit. Never call this in the process with the open database: POSIX would
    release its locks. Raises OSError, and BucketError for a damaged copy.
    """
    log, copied_log = Path(f"{source}-wal"), Path(f"{target}-wal")
    for _ in range(_TRIES):
        before = _state(source, log)
        if before is None:
            return False
        copied_log.unlink(missing_ok=True)
        try:
            shutil.copyfile(source, target)
            if before[1]:
                shutil.copyfile(log, copied_log)
        except FileNotFoundError:
            continue
        if _state(source, log) == before:
            break
        time.sleep(_PAUSE_S)
    else:
        raise BucketError(f"{source} changes too fast to be copied")
    if not before[1] and not os.path.exists(f"{source}-journal"):
        return True  # nobody writes
    try:
        with contextlib.closing(sqlite3.connect(target)) as db:
            db.execute("pragma synchronous = off")
            db.execute("pragma journal_mode = delete")  # takes the log in
            answer = db.execute("pragma quick_check").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise BucketError(f"the copy of {source} is damaged: {error}") from error
    if answer != ("ok",):
        raise BucketError(f"the copy of {source} is damaged: {answer}")
    return True


def _state(source: Path, log: Path) -> tuple[int, bytes, object] | None:
    """Return what stays the same while the files together hold one state: the log's beginning, or without a log the
    time of the last change of the database."""
    try:
        status = source.stat()
    except FileNotFoundError:
        return None
    try:
        with log.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return status.st_ino, header, None if header else (status.st_mtime_ns, status.st_size)
