"""Reads growing text logs: from any byte, across rotation and truncation, in bounded memory.

Control characters are removed, so that the text cannot harm a terminal. A link in place of a log is not followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.config.learning import TAKEN_NAMES
from remuda.storage.untrusted import open_regular
from remuda.wire.messages import LogPosition

PIECE_BYTES = 64 << 10
"""Most bytes per read; a longer line comes in several pieces."""
_BLOCK_BYTES = 64 << 10
LAST_BYTES = 8 << 20
"""Most bytes at the end of a file searched for the last lines."""
MOST_LOGS = 10_000
"""Most logs of a source; the oldest beyond the limit are left out."""
FILES = {
    "commander": "commander/commander_logger.txt",
    "commander_collector": "commander/commander_collector_logger.txt",
    "commander_evaluator": "commander/commander_evaluator_logger.txt",
    "coordinator": "coordinator_logger.txt",
    "learner": "learner/learner_logger.txt",
    "buffer": "buffer/buffer_logger.txt",
}
"""Logs with fixed names."""
FOLDERS = ("collector", "evaluator", "reanalyzer", "inference")
"""Folders with logs of workers, one for each incarnation."""
SOURCES = (*FILES, *FOLDERS)
LEARNER = "learner"
"""Name of a folder inside the folder of each policy."""
_POLICY = re.compile(r"[a-z][a-z0-9_]{0,49}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class NoSuchSourceError(Exception):
    """Unknown name of a log; the text lists the known names."""


@dataclass(frozen=True)
class Piece:
    """Some lines, and the position after the lines."""

    position: LogPosition
    text: str


@dataclass(frozen=True)
class LogEntry:
    """Entry of a log in its folder."""

    file: str
    """Relative to the run's log/."""
    inode: int
    size: int

    def has_news(self, position: LogPosition) -> bool:
        """Return True if the log may hold text after this position."""
        return (self.inode, self.size) != (position.inode, position.offset)


def find(log: Path, source: str) -> list[LogEntry]:
    """Find the files of a source: by name, or by the beginning of a worker's UUID. At most MOST_LOGS, the newest names.

    With several policies, `learner` finds the logs of all policies, and `<policy>/learner` the log of one. Logs without
    a file are left out. Raises NoSuchSourceError.
    """
    policy, _, name = source.rpartition("/")
    if policy in policies(log) and name in FILES:
        return _found(log, [f"{policy}/{FILES[name]}"])
    if source in FILES:
        return _found(log, [FILES[source], *(f"{policy}/{FILES[source]}" for policy in policies(log))])
    if source in FOLDERS:
        return _logs(log, source, "")[-MOST_LOGS:]
    is_name = re.fullmatch(r"[0-9a-f][0-9a-f-]{3,35}", source)
    by_worker = [found for role in FOLDERS for found in _logs(log, role, source)] if is_name else []
    if not by_worker:
        raise NoSuchSourceError(
            f"there is no log {source!r}: give {', '.join(SOURCES)}, or the first four or more characters of the UUID "
            "of a collector or evaluator of this run"
        )
    return by_worker[-MOST_LOGS:]


def policies(log: Path) -> list[str]:
    """Return the names of several policies, each with a folder of logs; empty for a run with one policy."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(log) as entries:
        found = [
            entry.name for entry in entries if _POLICY.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
        return sorted(name for name in found if name not in TAKEN_NAMES and (log / name / LEARNER).is_dir())
    return []


def label(file: str) -> str:
    """Return the worker of a log, for output of several logs: `collector 01234567.1`."""
    role, _, name = file.rpartition("/")
    match = re.match(r"([0-9a-f]{8})[0-9a-f-]*_(\d{6})_", name)
    return f"{role} {match[1]}.{int(match[2])}" if match else role or name


def begin(log: Path, file: str, last_lines: int | None) -> LogPosition:
    """Return the position before the last `last_lines` lines; for None, the beginning."""
    with open_regular(log / file, follow_link=False) as opened:
        status = os.fstat(opened.fileno())
        if last_lines is None:
            return LogPosition(file, status.st_ino, 0)
        return LogPosition(file, status.st_ino, _before_last(opened.fileno(), status.st_size, last_lines))


def read(log: Path, position: LogPosition, *, to_the_end: bool = False) -> Piece:
    """Read the next whole lines from `position` on; an empty text at the end.

    An unfinished line is returned if it is longer than a piece, or with `to_the_end`, after the end of the writer. A
    rotated file (renamed and replaced) is read to its end before the new file. A truncated file is read from its
    beginning.
    """
    renamed = _renamed(log, position)
    if renamed is not None:
        rest = _read(renamed, position, to_the_end=True)
        if rest.text or not (log / position.file).exists():
            return rest
    return _read(log / position.file, position, to_the_end=to_the_end)


def _read(path: Path, position: LogPosition, *, to_the_end: bool) -> Piece:
    with open_regular(path, follow_link=False) as opened:
        status = os.fstat(opened.fileno())
        replaced = status.st_ino != position.inode or status.st_size < position.offset
        offset = 0 if replaced else position.offset
        block = os.pread(opened.fileno(), PIECE_BYTES, offset)
    whole = block.rfind(b"\n") + 1
    if not whole and len(block) == PIECE_BYTES:
        whole = whole_characters(block)
    elif not whole and to_the_end:
        whole = len(block)
    return Piece(
        LogPosition(position.file, status.st_ino, offset + whole), harmless(block[:whole].decode(errors="replace"))
    )


def _renamed(log: Path, position: LogPosition) -> Path | None:
    """Return the new path of a rotated file, for instance `x.txt.1`."""
    path = log / position.file
    if not position.inode or (path.exists() and path.stat().st_ino == position.inode):
        return None
    with os.scandir(path.parent) as entries:
        found = (entry for entry in entries if entry.name.startswith(f"{path.name}."))
        return next((Path(entry) for entry in found if entry.inode() == position.inode), None)


def harmless(text: str) -> str:
    """Replace characters that would move or colour a terminal's cursor, or break a line."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _logs(log: Path, role: str, beginning: str) -> list[LogEntry]:
    """Return the logs of a role's workers in order of name, from a listing of the folder."""
    found: list[LogEntry] = []
    try:
        with os.scandir(log / role) as entries:
            for entry in entries:
                is_log = entry.is_file(follow_symlinks=False)  # a link might lead to any file
                if is_log and entry.name.endswith("_logger.txt") and entry.name.startswith(beginning):
                    status = entry.stat()
                    found.append(LogEntry(f"{role}/{entry.name}", status.st_ino, status.st_size))
    except FileNotFoundError:
        return found
    return sorted(found, key=lambda each: each.file)


def _found(log: Path, files: Sequence[str]) -> list[LogEntry]:
    found: list[LogEntry] = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(log / file)
            if stat.S_ISREG(status.st_mode):
                found.append(LogEntry(file, status.st_ino, status.st_size))
    return found


def _before_last(descriptor: int, size: int, lines: int) -> int:
    """Return the offset before the last `lines` lines, including an unfinished last line, or before the last
    LAST_BYTES."""
    if lines == 0:
        return size
    position, wanted, bound = size, lines, max(0, size - LAST_BYTES)
    if size and os.pread(descriptor, 1, size - 1) == b"\n":
        wanted += 1  # the newline of the last line does not count
    while position > bound:
        start = max(bound, position - _BLOCK_BYTES)
        block = os.pread(descriptor, position - start, start)
        ends = block.count(b"\n")
        if ends < wanted:
            wanted, position = wanted - ends, start
            continue
        while (end := block.rfind(b"\n")) >= 0:
            wanted -= 1
            if wanted == 0:
                return start + end + 1
            block = block[:end]
        position = start
    return bound and bound + os.pread(descriptor, size - bound, bound).find(b"\n") + 1


def whole_characters(block: bytes) -> int:
    """Return the length of the part of `block` that ends with a whole UTF-8 character."""
    for cut in range(min(4, len(block))):
        byte = block[-1 - cut]
        if byte & 0xC0 != 0x80:  # begin of the last character
            length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(block) if length <= cut + 1 else len(block) - cut - 1
    return len(block)
