"""Any log of a run, page by page and by what stands in it; no other file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.logbook.tail import harmless
from remuda.page import log_files
from remuda.page.log_files import UnknownLogError, read_part, search
from remuda.storage.run_folder import RunFolder
from remuda.tests.page.folders import OTHER_WORKER, WORKER, finished_run, touch

LEARNER = "learner/learner_logger.txt"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path / "runs", "a")


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / LEARNER
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return tmp_path


def test_all_logs_are_listed_those_of_dead_workers_too(folder: RunFolder) -> None:
    folder.worker_log("collector", OTHER_WORKER, 2).write_text("alive\n")
    touch(folder.worker_log("collector", WORKER, 1), 1_000.0)
    found = log_files.log_files(folder.log, [(OTHER_WORKER, 2)])
    assert [(each.source, each.worker, each.incarnation, each.alive) for each in found] == [
        ("commander", None, None, False),
        ("learner", None, None, False),
        ("collector", OTHER_WORKER, 2, True),
        ("collector", WORKER, 1, False),
    ]
    assert all(each.size_bytes == (folder.log / each.file).stat().st_size for each in found)


def test_the_end_of_a_log_and_what_stands_before_it(folder: RunFolder) -> None:
    last = read_part(folder.log, LEARNER, lines=3)
    assert [line[-9:] for line in last.text.splitlines()] == ["line 1997", "line 1998", "line 1999"]
    assert (last.end, last.lines, last.more_before, last.more_after) == (last.size_bytes, 3, True, False)
    before = read_part(folder.log, LEARNER, before=last.begin, lines=2)
    assert [line[-9:] for line in before.text.splitlines()] == ["line 1995", "line 1996"]
    assert (before.end, before.more_after) == (last.begin, True)
    after = read_part(folder.log, LEARNER, after=before.begin, lines=2)
    assert after == before


@given(st.lists(st.text("ab é\r", max_size=8), max_size=12), st.integers(1, 5), st.booleans())
def test_page_by_page_is_the_whole_log_in_both_directions(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], page: int, ended: bool
) -> None:
    content = "\n".join(lines).encode() + (b"\n" if ended else b"")
    log = written(tmp_path_factory.mktemp("log"), content)
    whole = harmless(content.decode())
    backwards, before = "", len(content)
    while before > 0:
        part = read_part(log, LEARNER, before=before, lines=page)
        assert part.begin < before
        backwards, before = part.text + backwards, part.begin
    assert backwards == whole
    forwards, after = "", 0
    while (part := read_part(log, LEARNER, after=after, lines=page)).text:
        forwards, after = forwards + part.text, part.end
    assert forwards == harmless(content[: content.rfind(b"\n") + 1].decode())


@given(st.lists(st.sampled_from(["aa", "ab", "b", ""]), max_size=30), st.integers(1, 4), st.integers(4, 9))
def test_every_match_is_found_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], most: int, block_bytes: int
) -> None:
    content = "".join(f"{line}\n" for line in lines)
    log = written(tmp_path_factory.mktemp("log"), content.encode())
    found: list[int] = []
    before: int | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "_BLOCK_BYTES", block_bytes)
        while before is None or before > 0:
            part = search(log, LEARNER, "b", before=before, most=most)
            assert before is None or part.next_before < before
            found += [match.begin for match in part.matches]
            before = part.next_before
    assert found == [match.start() for match in re.finditer(r"^.*b.*$", content, re.MULTILINE)][::-1]


def test_a_search_reads_no_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "SEARCHED_BYTES", 1_000)
    monkeypatch.setattr(log_files, "_BLOCK_BYTES", 200)
    log = written(tmp_path, b"needle\n" + b"hay and hay\n" * 1_000)
    found = search(log, LEARNER, "needle")
    assert found.matches == []
    assert found.more_before
    assert found.size_bytes - found.next_before <= 1_200
    rounds = 1
    while not found.matches:
        found = search(log, LEARNER, "needle", before=found.next_before)
        rounds += 1
    assert 10 <= rounds <= 16


@pytest.mark.parametrize(
    "file",
    [
        "", "..", "../config.json", "/etc/passwd", "commander/../../config.json", "timers.json", "series.msgpack",
        "collector/x_logger.txt", "collector/../learner/learner_logger.txt", f"other/{WORKER}_000001_logger.txt",
        f"collector/{WORKER}_000001_logger.txt/..", f"collector/../{WORKER}_000001_logger.txt",
        "learner/learner_logger.txt\0",
    ],
)  # fmt: skip
def test_no_other_file_is_read(folder: RunFolder, file: str) -> None:
    with pytest.raises(UnknownLogError):
        read_part(folder.log, file)
    with pytest.raises(UnknownLogError):
        search(folder.log, file, "x")


@pytest.mark.parametrize("linked", ["log/learner", "log/collector", "log"])
def test_a_linked_folder_of_logs_is_not_followed(folder: RunFolder, tmp_path: Path, linked: str) -> None:
    (folder.root / linked).rename(tmp_path / "elsewhere")
    (folder.root / linked).symlink_to(tmp_path / "elsewhere")
    hidden = {
        "log/learner": [LEARNER],
        "log/collector": [f"collector/{WORKER}_000001_logger.txt"],
        "log": [LEARNER, "coordinator_logger.txt"],
    }[linked]
    for file in hidden:
        with pytest.raises(UnknownLogError, match="link"):
            read_part(folder.log, file)
    left = {each.file for each in log_files.log_files(folder.log)}
    assert not left & set(hidden)
    assert bool(left) == (linked != "log")
