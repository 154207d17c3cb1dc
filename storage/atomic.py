"""Atomic writes: a reader sees all of the new content or none."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

_BUFFERS_AT_ONCE = 1_024
"""Most buffers that Linux takes in one call."""
_TEMPORARY = re.compile(r"\..+\.[0-9]+\.[0-9a-f]{8}\.tmp")
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


class Replacing(Protocol):
    """A way to replace a file: `replacing`, or the method of a Fence."""

    def __call__(self, path: Path, *, durable: bool) -> AbstractContextManager[Path]:
        """See `replacing`."""
        ...


@contextmanager
def replacing(path: Path, *, durable: bool, prepared_in: Path | None = None) -> Generator[Path, None, None]:
    """Yield a temporary path beside `path`, or in the folder `prepared_in` of the same file system; the file that the
    body writes to the temporary path becomes `path` if the body succeeds.

    If the body fails, `path` is unchanged and the temporary file is removed. With `durable`, two fsyncs make the new
    content survive a power failure; without, the file survives the process, but not the machine.
    """
    temporary = (prepared_in or path.parent) / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        if durable:
            _sync(temporary)
        os.replace(temporary, path)
    finally:
        # Also needed after success: renaming one hard link of a file over another is a no-op that keeps both names.
        temporary.unlink(missing_ok=True)
    if durable:
        _sync(path.parent)


def link(source: Path, target: Path, *, durable: bool) -> None:
    """Replace `target` by a hard link to `source`; by a copy on a file system without hard links."""
    try:
        with replacing(target, durable=durable) as temporary:
            os.link(source, temporary)
    except FileNotFoundError:
        raise
    except OSError:
        with replacing(target, durable=True) as temporary:
            shutil.copyfile(source, temporary)


@contextmanager
def outlived(path: Path) -> Generator[int | None, None, None]:
    """Keep the present file at `path` open, if any, while the body replaces it.

    Freeing the disk space of a large file takes several milliseconds, when the last reference to the file is closed:
    here after the body, and not inside the body in `os.replace`. Yields the file's descriptor.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_bytes(
    path: Path,
    data: bytes | bytearray | memoryview,
    *,
    durable: bool,
    mode: int = 0o666,
    replace: Replacing = replacing,
) -> None:
    """Replace `path` by `data`. The new file has `mode` (before umask) from the start, so that 0o600 is private at all
    times."""
    write_buffers(path, (data,), durable=durable, mode=mode, replace=replace)


def write_buffers(
    path: Path,
    buffers: Iterable[bytes | bytearray | memoryview],
    *,
    durable: bool,
    mode: int = 0o666,
    replace: Replacing = replacing,
) -> None:
    """As `write_bytes`, for content in several buffers, which are not joined first."""
    with replace(path, durable=durable) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb", buffering=0) as file:
            write_all(file.fileno(), buffers)


def write_all(descriptor: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
    """Write `buffers` one after another, with as few system calls as possible: after each call a thread may have to
    wait for the interpreter lock."""
    rest = [memoryview(buffer).cast("B") for buffer in buffers]
    while rest:
        rest = _without(rest, os.writev(descriptor, rest[:_BUFFERS_AT_ONCE]))


def write_text(path: Path, text: str, *, durable: bool, mode: int = 0o666) -> None:
    """Replace `path` by `text` in UTF-8; newlines are not converted."""
    write_bytes(path, text.encode(), durable=durable, mode=mode)


def clock_s(folder: Path) -> float:
    """Return the time by the clock that stamps the folder's files: a file server has a clock of its own, and the clocks
    of two machines may differ by minutes."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:  # for instance a full disk
        return time.time()


def sweep_temporaries(folder: Path, *, older_than_s: float, now_s: float | None = None) -> int:
    """Remove temporary files that dead writers left in `folder`; return their number.

    Files younger than `older_than_s` are kept: a writer may be at work. `now_s`: time by `clock_s`, asked if missing.
    """
    now_s = clock_s(folder) if now_s is None else now_s
    removed = 0
    for entry in os.scandir(folder) if folder.is_dir() else ():
        if not _TEMPORARY.fullmatch(entry.name):
            continue
        try:
            if now_s - entry.stat(follow_symlinks=False).st_mtime <= older_than_s:
                continue
            os.unlink(entry.path)
        except FileNotFoundError:
            continue  # its writer finished, or another process removed it
        removed += 1
    return removed


def _without(buffers: list[memoryview], count: int) -> list[memoryview]:
    """Return the rest of `buffers` after their first `count` bytes."""
    for number, buffer in enumerate(buffers):
        if count < len(buffer):
            return [buffer[count:], *buffers[number + 1 :]]
        count -= len(buffer)
    return []


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
