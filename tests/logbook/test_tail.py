"""Logs are read as they grow, in whole lines, each byte once, whatever happens to the file meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.logbook import tail
from remuda.logbook.tail import PIECE_BYTES, NoSuchSourceError, begin, find, label, read
from remuda.wire.messages import LogPosition

FILE = "coordinator_logger.txt"
WORKER = "01234567-89ab-4def-8123-456789abcdef"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for folder in ("commander", "collector", "evaluator", "learner"):
        (tmp_path / folder).mkdir()
    return tmp_path


def write(log: Path, content: bytes, *, file: str = FILE) -> None:
    with open(log / file, "ab") as opened:
        opened.write(content)


def everything(log: Path, place: LogPosition, *, to_the_end: bool = False) -> tuple[str, LogPosition]:
    text = ""
    while (piece := read(log, place, to_the_end=to_the_end)).text:
        text += piece.text
        place = piece.position
    return text, piece.position


@settings(deadline=None)  # the disk decides how long it takes
@given(chunks=st.lists(st.binary(max_size=40), max_size=30))
def test_every_byte_is_read_once(chunks: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    log = tmp_path_factory.mktemp("log")
    write(log, b"")
    place, text = begin(log, FILE, None), ""
    for chunk in chunks:
        write(log, chunk)
        piece = read(log, place)
        assert piece.text == "" or piece.text.endswith("\n")
        text, place = text + piece.text, piece.position
    rest, _ = everything(log, place, to_the_end=True)
    assert text + rest == tail.harmless(b"".join(chunks).decode(errors="replace"))


@pytest.mark.parametrize("lines", [0, 2, 1_000, 5_000])
@pytest.mark.parametrize("ended", [True, False])
def test_the_last_lines(log: Path, lines: int, ended: bool) -> None:
    written = [f"line {number}\n" for number in range(1_000)]
    content = "".join(written) if ended else "".join(written)[:-1]
    write(log, content.encode())
    text, _ = everything(log, begin(log, FILE, lines), to_the_end=True)
    assert text == "".join(written[len(written) - min(lines, 1_000) :])[: None if ended else -1]


def test_only_the_end_of_a_long_log_is_looked_through(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-n 1000000000` kept everybody waiting for seconds."""
    monkeypatch.setattr(tail, "LAST_BYTES", 10_000)
    written = [f"line {number:05d}\n" for number in range(100_000)]
    write(log, "".join(written).encode())
    text, _ = everything(log, begin(log, FILE, 10**9))
    assert text == "".join(written[-len(text) // 11 :])
    assert 10_000 - 11 <= len(text) <= 10_000


def test_a_log_has_news_when_it_has_grown_or_was_replaced(log: Path) -> None:
    write(log, b"one\n")
    [before] = find(log, "coordinator")
    place = read(log, begin(log, FILE, None)).position
    assert not before.has_news(place)
    write(log, b"two\n")
    [after] = find(log, "coordinator")
    assert after.has_news(place)
    assert after.has_news(LogPosition(FILE))


def test_a_line_longer_than_a_piece_comes_in_pieces_ofwhole_characters(log: Path) -> None:
    line = "ä€😀" * 40_000 + "\n"
    write(log, line.encode())
    place, text = begin(log, FILE, None), ""
    while (piece := read(log, place)).text:
        assert len(piece.text.encode()) <= PIECE_BYTES
        text, place = text + piece.text, piece.position
    assert text == line


def test_of_a_rotated_file_the_rest_comes_first(log: Path) -> None:
    write(log, b"old\n" * 3)
    _, place = everything(log, begin(log, FILE, None))
    write(log, b"last of it\ncut in the mid")
    os.rename(log / FILE, log / f"{FILE}.1")
    assert everything(log, place)[0] == "last of it\ncut in the mid", "before there is a new one"
    write(log, b"new\n")
    text, place = everything(log, place)
    assert text == "last of it\ncut in the midnew\n"
    write(log, b"newer\n")
    assert everything(log, place)[0] == "newer\n"


def test_a_truncated_file_is_read_from_its_start(log: Path) -> None:
    write(log, b"much of it\n" * 10)
    _, place = everything(log, begin(log, FILE, None))
    os.truncate(log / FILE, 0)
    write(log, b"again\n")
    assert read(log, place).text == "again\n"


def test_nothing_reaches_the_terminal_but_text(log: Path) -> None:
    write(log, b"\x1b[2J\x1b]0;title\x07 \xff\xfe \x00 tab\tkept \r over \xc2\x9b31m \xe2\x80\xa8\n")
    text = read(log, begin(log, FILE, None)).text
    assert text.endswith("\n")
    assert "\t" in text
    assert all(character.isprintable() or character in "\t\n" for character in text)


def test_sources_are_found_by_name_and_by_worker(log: Path) -> None:
    for number in (1, 2):
        write(log, b"", file=f"collector/{WORKER}_{number:06d}_logger.txt")
    write(log, b"", file="collector/fedcba98-89ab-4def-8123-456789abcdef_000001_logger.txt")
    write(log, b"", file="evaluator/76543210-89ab-4def-8123-456789abcdef_000001_logger.txt")
    assert len(find(log, "collector")) == 3
    of_worker = [f"collector/{WORKER}_{number:06d}_logger.txt" for number in (1, 2)]
    assert [each.file for each in find(log, WORKER[:6])] == of_worker
    [other] = find(log, "7654")
    assert other.file == "evaluator/76543210-89ab-4def-8123-456789abcdef_000001_logger.txt"
    assert find(log, "learner") == [], "not written yet"
    assert [label(each.file) for each in find(log, WORKER)] == ["collector 01234567.1", "collector 01234567.2"]
    assert label("commander/commander_logger.txt") == "commander"


@pytest.mark.parametrize("source", ["comander", "012", "../../etc/passwd", ""])
def test_what_is_no_source_is_refused_with_those_there_are(log: Path, source: str) -> None:
    write(log, b"", file=f"collector/{WORKER}_000001_logger.txt")
    with pytest.raises(NoSuchSourceError, match="commander, commander_collector"):
        find(log, source)


@given(block=st.text(min_size=1).map(str.encode), cut=st.integers(min_value=1))
def test_no_character_is_cut_in_two(block: bytes, cut: int) -> None:
    part = block[: cut % len(block) + 1]
    whole = tail.whole_characters(part)
    part[:whole].decode()
    assert len(part) - whole < 4
