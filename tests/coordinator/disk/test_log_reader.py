"""Logs for clients: each file has its turn, -n is kept to, and who reads nothing new costs next to nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from remuda.client import LogReader
from remuda.coordinator.disk.run_folder import PIECES, read_log
from remuda.coordinator.effects import ReadLog, Requester
from remuda.logbook import tail
from remuda.wire.messages import LogRequest, LogText

COLLECTORS = 40


class Reading:
    """Stands between a client's reader and the coordinator's, without a network."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.over = False
        self.requests = 0

    def read_log(self, request: LogRequest) -> LogText:
        self.requests += 1
        answer = read_log(ReadLog(Requester(b"client", 1), str(self.run_dir), request, self.over)).answer
        assert isinstance(answer, LogText)
        assert len(answer.pieces) <= PIECES
        return answer


def path_of(run_dir: Path, number: int) -> Path:
    return run_dir / "log" / "collector" / f"{number:08x}-89ab-4def-8123-456789abcdef_000001_logger.txt"


def append(run_dir: Path, number: int, *lines: str) -> None:
    path = path_of(run_dir, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.writelines(f"{line}\n" for line in lines)


def reader_of(reading: Reading, last_lines: int | None) -> LogReader:
    return LogReader(reading, "x", "collector", last_lines=last_lines)  # type: ignore[arg-type]


def read_all(reader: LogReader) -> Counter[str]:
    """Until there is nothing more at once: how many lines of each file."""
    lines: Counter[str] = Counter()
    while True:
        pieces = reader.read()
        for piece in pieces:
            lines[piece.position.file] += len(piece.text.splitlines())
        if not pieces and not reader.more:
            return lines


def test_the_last_lines_are_those_of_every_file_however_many(tmp_path: Path) -> None:
    """Beyond sixteen files `-n` was forgotten: five lines of some, and all of the others."""
    for number in range(COLLECTORS):
        append(tmp_path, number, *(f"line {line}" for line in range(100)))
    append(tmp_path, COLLECTORS, "only one")
    reader = reader_of(Reading(tmp_path), 5)
    lines = read_all(reader)
    assert sorted(lines.values()) == [1, *[5] * COLLECTORS]
    append(tmp_path, 99, *(f"line {line}" for line in range(7)))
    append(tmp_path, 3, "news")
    assert sorted(read_all(reader).values()) == [1, 7], "a log that comes later is shown whole"


def test_every_file_has_its_turn_while_others_never_end(tmp_path: Path) -> None:
    for number in range(COLLECTORS):
        append(tmp_path, number, "x")
    reader = reader_of(Reading(tmp_path), None)
    seen: set[str] = set()
    for _ in range(2 * COLLECTORS // PIECES + 2):
        for number in range(COLLECTORS):
            append(tmp_path, number, "more")
        seen |= {piece.position.file for piece in reader.read()}
    assert len(seen) == COLLECTORS


def test_who_has_read_everything_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question read up to 64 KiB of every file, whether it had grown or not."""
    for number in range(COLLECTORS):
        append(tmp_path, number, "x")
    reading = Reading(tmp_path)
    reader = reader_of(reading, None)
    read_all(reader)
    opened: list[tail.LogPosition] = []

    def note(log: Path, place: tail.LogPosition, *, to_the_end: bool) -> None:
        opened.append(place)

    monkeypatch.setattr(tail, "read", note)
    assert reader.read() == []
    assert opened == []
