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

from remuda.storage.bucket.address import BucketError
from remuda.storage.bucket.generation import File, Part
from remuda.storage.run_folder import RunFolder

BLOCK_BYTES = 8 << 20
"""Largest part of a file."""
PAGE_BLOCK_BYTES = 256 << 10
"""Parts of the journal, whose pages change in place."""
NO_STAMP = (0, 0, 0)
"""Of a file that is read each time."""
_HEADER_BYTES = 32
"""SQLite's write-ahead log begins with this header, which changes whenever the log starts over."""
_TRIES, _PAUSE_S = 50, 0.05
_ENDS = (".lock", ".tmp", "-wal", "-shm")
"""Names of files that only living processes of this machine need."""


@dataclass(frozen=True)
class Known:
    """A file as last shipped."""

    stamp: tuple[int, int, int]
    """Inode, size and time of the last change: a file with the same stamp is not read again."""
    file: File


@dataclass
class Snapshot:
    """The files of one moment, and the places from which their parts are read until the snapshot is removed."""

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


def take(root: Path, staging: Path, former: Mapping[str, Known], *, payloads: bool) -> Snapshot:
    """Copy the run folder into the empty folder `staging`, by links; without payload files unless `payloads`.

    Files are linked before and after the journal is copied, so no file that the journal names is missing: it is at
    worst deleted later, and the link stays. Files newer than the journal are what a crash would leave, too. Raises
    OSError, and BucketError for a damaged journal.
    """
    run = RunFolder(root)
    found: dict[str, os.stat_result] = {}
    _link(root, staging, former, found, payloads=payloads)
    journal = staging / run.journal.name
    has_journal = copy_database(run.journal, journal)
    _link(root, staging, former, found, payloads=payloads)
    snapshot = Snapshot()
    for path, status in sorted(found.items()):
        known, stamp = former.get(path), _stamp(status)
        if known is not None and known.stamp == stamp:
            snapshot.files[path] = known
            continue
        kept = () if known is None else known.file.parts
        parts = _parts(staging / path, status.st_size, kept, BLOCK_BYTES, snapshot)
        snapshot.files[path] = Known(stamp, File(path, stat.S_IMODE(status.st_mode), parts))
    if has_journal:
        size = journal.stat().st_size
        parts = _parts(journal, size, (), PAGE_BLOCK_BYTES, snapshot)
        snapshot.files[journal.name] = Known(NO_STAMP, File(journal.name, 0o600, parts))
    return snapshot


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the ordinary files of a folder, by their path inside, except files of living processes."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if name.startswith((".owner", ".bucket")) or name.endswith(_ENDS):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    yield os.path.relpath(path, root), status


def _link(
    root: Path,
    staging: Path,
    former: Mapping[str, Known],
    found: dict[str, os.stat_result],
    *,
    payloads: bool,
) -> None:
    """Link files that are not known yet, and note the state of all."""
    run = RunFolder(root)
    skipped = () if payloads else (f"{run.data.name}/",)
    for path, status in walk(root):
        if path == run.journal.name or path.startswith(skipped):
            continue
        known = former.get(path)
        if known is None or known.stamp != _stamp(status):
            with contextlib.suppress(FileNotFoundError):  # deleted at this moment
                status = _linked(root / path, staging / path)
                found[path] = status
        else:
            found[path] = status


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
            part = Part(hashlib.sha256(data).hexdigest(), len(data))
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
