"""The text logs of a run, including logs of dead workers: list, parts, and search."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from remuda.logbook.tail import FILES, FOLDERS, MOST_LOGS, harmless, policies
from remuda.storage.untrusted import open_regular

MOST_LINES = 5_000
MOST_BYTES = 512 << 10
"""Most bytes of text per answer."""
SEARCHED_BYTES = 16 << 20
"""Most bytes read per search."""
MOST_MATCHES = 200
_LONGEST_MATCH = 2_000
_BLOCK_BYTES = 256 << 10
_SOURCES = {path: source for source, path in FILES.items()} | {
    f"{role}/{role}_logger.txt": role for role in ("collector", "evaluator")
}
"""Sources of the logs that belong to no single worker; a serial run has the last two."""
_WORKER = re.compile(r"([0-9a-f]{8}-[0-9a-f-]{27})_(\d{6})_logger\.txt")


class UnknownLogError(Exception):
    """The run has no log of this name."""


class LogFile(Struct, frozen=True, kw_only=True):
    """A log."""

    file: str
    """Path inside log/ of the run."""
    source: str
    worker: str | None = None
    incarnation: int | None = None
    size_bytes: int
    changed_s: float
    alive: bool = False
    """True while its process works for the run."""


class LogPart(Struct, frozen=True, kw_only=True):
    """Whole lines of a log: the bytes from `begin` up to `end`."""

    file: str
    begin: int
    end: int
    size_bytes: int
    text: str
    lines: int
    more_before: bool
    more_after: bool


class Match(Struct, frozen=True, kw_only=True):
    """A line with the searched text."""

    file: str
    begin: int
    text: str


class SearchResult(Struct, frozen=True, kw_only=True):
    """Matches of a search, the last lines first."""

    file: str
    matches: list[Match]
    next_before: int
    """Offset for continuing the search."""
    more_before: bool
    size_bytes: int


def log_files(log: Path, alive: Iterable[tuple[str, int]] = ()) -> list[LogFile]:
    """Return all logs of a run: logs of no single worker first, then logs of workers, the newest first. `alive`: UUIDs
    and incarnations of the current workers."""
    sources = _sources(log)
    inside = {folder for folder in {*FOLDERS, *map(os.path.dirname, sources)} if _is_inside(log, folder)}
    here = [(name, source) for name, source in sources.items() if os.path.dirname(name) in inside]
    own = [found for name, source in here if (found := _log_file(log, name, source)) is not None]
    living = set(alive)
    of_workers: list[LogFile] = []
    for folder in (each for each in FOLDERS if each in inside):
        for name in _listed(log / folder):
            match = _WORKER.fullmatch(name)
            if match is not None:
                who = match[1], int(match[2])
                found = _log_file(log, f"{folder}/{name}", folder, who, alive=who in living)
                of_workers += [] if found is None else [found]
    newest = sorted(of_workers, key=lambda each: each.changed_s, reverse=True)
    return [*own, *newest][:MOST_LOGS]


def known_log(log: Path, file: str) -> Path:
    """Return the path of a log of this run. Raises UnknownLogError for unknown logs and for linked folders."""
    folder, _, name = file.rpartition("/")
    if file not in _sources(log) and not (folder in FOLDERS and _WORKER.fullmatch(name)):
        raise UnknownLogError(f"there is no log {file[:100]!r}")
    if not _is_inside(log, folder):
        raise UnknownLogError(f"the folder of the log {file} is a link; links are not followed")
    return log / file


def read_part(
    log: Path, file: str, *, before: int | None = None, after: int | None = None, lines: int = 500
) -> LogPart:
    """Return whole lines: the last before the byte `before` (None: the end), or the first from `after` on. Both offsets
    are begins of lines. Raises UnknownLogError, OSError."""
    path = known_log(log, file)
    with open_regular(path, follow_link=False) as opened:
        size = os.fstat(opened.fileno()).st_size
        if after is not None:
            begin = min(max(after, 0), size)
            block = os.pread(opened.fileno(), MOST_BYTES, begin)
            end = begin + _first_lines(block, lines)
        else:
            end = min(max(size if before is None else before, 0), size)
            start = max(end - MOST_BYTES, 0)
            block = os.pread(opened.fileno(), end - start, start)
            begin = start + _before_last_lines(block, lines, is_whole=start == 0)
        text = os.pread(opened.fileno(), end - begin, begin)
    return LogPart(
        file=file,
        begin=begin,
        end=end,
        size_bytes=size,
        text=harmless(text.decode("utf-8", "replace")),
        lines=text.count(b"\n") + (not text.endswith(b"\n") and bool(text)),
        more_before=begin > 0,
        more_after=end < size,
    )


def search(
    log: Path, file: str, text: str, *, before: int | None = None, case: bool = False, most: int = MOST_MATCHES
) -> SearchResult:
    """Search a log backwards from the byte `before` (None: the end). Reads at most SEARCHED_BYTES. Raises
    UnknownLogError, OSError."""
    path = known_log(log, file)
    wanted = re.compile(re.escape(text.encode()), 0 if case else re.IGNORECASE)
    matches: list[Match] = []
    with open_regular(path, follow_link=False) as opened:
        size = os.fstat(opened.fileno()).st_size
        end = min(max(size if before is None else before, 0), size)
        stop = max(end - SEARCHED_BYTES, 0)
        while end > stop and len(matches) < most:
            start = max(end - _BLOCK_BYTES, 0)
            block = os.pread(opened.fileno(), end - start, start)
            skipped = 0 if start == 0 else block.find(b"\n", 0, len(block) - 1) + 1
            # a block without newline is part of one line, and shown in pieces
            found = _matches(file, block[skipped:], start + skipped, wanted)
            room = most - len(matches)
            matches += found[:room]
            end = found[room - 1].begin if len(found) >= room else start + skipped
    return SearchResult(file=file, matches=matches, next_before=end, more_before=end > 0, size_bytes=size)


def _sources(log: Path) -> dict[str, str]:
    """Return the sources of this run, including the logs of several policies."""
    own = {f"{policy}/{path}": f"{policy}/{source}" for policy in policies(log) for path, source in _SOURCES.items()}
    return {**_SOURCES, **own}


def _matches(file: str, block: bytes, begin: int, wanted: re.Pattern[bytes]) -> list[Match]:
    """The last line first."""
    found: list[Match] = []
    position = 0
    for line in block.splitlines(keepends=True):
        if wanted.search(line):
            shown = harmless(line[: 4 * _LONGEST_MATCH].decode("utf-8", "replace").rstrip("\r\n"))[:_LONGEST_MATCH]
            found.append(Match(file=file, begin=begin + position, text=shown))
        position += len(line)
    return found[::-1]


def _first_lines(block: bytes, lines: int) -> int:
    """Return the bytes of the first whole lines of the block; all bytes for one long line."""
    position = 0
    for _ in range(lines):
        end = block.find(b"\n", position)
        if end < 0:
            break
        position = end + 1
    return position or (len(block) if len(block) == MOST_BYTES else 0)


def _before_last_lines(block: bytes, lines: int, *, is_whole: bool) -> int:
    """Return the begin of the last lines of the block, including an unfinished last line."""
    position = len(block) - 1 if block.endswith(b"\n") else len(block)
    for _ in range(lines):
        position = block.rfind(b"\n", 0, max(position, 0))
        if position < 0:
            return 0 if is_whole else block.find(b"\n", 0, max(len(block) - 1, 0)) + 1
    return position + 1


def _is_inside(log: Path, folder: str) -> bool:
    """Return True if neither log/ nor this folder of logs is a link."""
    return (log / folder).resolve() == log.parent.resolve() / log.name / folder


def _log_file(
    log: Path, file: str, source: str, worker: tuple[str, int] | None = None, *, alive: bool = False
) -> LogFile | None:
    try:
        status = os.lstat(log / file)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return LogFile(
        file=file,
        source=source,
        worker=None if worker is None else worker[0],
        incarnation=None if worker is None else worker[1],
        size_bytes=status.st_size,
        changed_s=status.st_mtime,
        alive=alive,
    )


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))[-MOST_LOGS:]
    except OSError:
        return []


def search_all(log: Path, text: str, *, case: bool = False) -> SearchResult:
    """Search all logs, the most recently changed first. Reads at most SEARCHED_BYTES per log, and four times as much in
    total. Unreadable logs are left out."""
    matches: list[Match] = []
    left = 4 * SEARCHED_BYTES
    whole = True
    files = sorted(log_files(log), key=lambda each: each.changed_s, reverse=True)
    for file in files:
        if left <= 0 or len(matches) >= MOST_MATCHES:
            whole = False
            break
        try:
            found = search(log, file.file, text, case=case, most=MOST_MATCHES - len(matches))
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError:
            whole = False
            continue
        matches += found.matches
        whole = whole and not found.more_before
        left -= max(found.size_bytes - found.next_before, 1)
    size = sum(file.size_bytes for file in files)
    return SearchResult(file="*", matches=matches, next_before=0, more_before=not whole, size_bytes=size)
