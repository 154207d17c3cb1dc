"""A record has date, caller and level, no text can imitate a record, and tables look as promised."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tabulate import tabulate

from remuda.logbook.lines import TextLog, Value, grid, lines, unforgeable

RECORD = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\]\[([^\[\]:]+):(\d+)\]\[([A-Z]+)\] (.*)$")


def test_a_record_tells_when_who_and_what(tmp_path: Path) -> None:
    log = TextLog(tmp_path / "a.txt")
    before = datetime.now().replace(microsecond=0)
    log.info("learner save ckpt in /r/ckpt/iteration_0.pth.tar")
    log.warning("100% odd %s")
    log.error("é")
    log.close()
    records = [RECORD.match(line) for line in (tmp_path / "a.txt").read_text(encoding="utf-8").splitlines()]
    parts = [record.groups() for record in records if record is not None]
    assert [(file, level, text) for _, file, _, level, text in parts] == [
        ("test_lines.py", "INFO", "learner save ckpt in /r/ckpt/iteration_0.pth.tar"),
        ("test_lines.py", "WARNING", "100% odd %s"),
        ("test_lines.py", "ERROR", "é"),
    ]
    assert [int(number) for _, _, number, _, _ in parts] == [first := int(parts[0][2]), first + 1, first + 2]
    assert before <= datetime.strptime(parts[0][0], "%Y-%m-%d %H:%M:%S") <= datetime.now()


def test_a_line_left_unfinished_by_a_killed_writer_is_ended_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("[2021-07-16 16:42:28][a.py:1][INFO] hal")
    log = TextLog(tmp_path / "a.txt")
    log.info("new")
    log.close()
    old, new = (tmp_path / "a.txt").read_text().splitlines()
    assert old.endswith("hal")
    assert RECORD.match(new)


def test_logging_of_the_process_is_separate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = set(logging.root.manager.loggerDict)
    log = TextLog(tmp_path / "a.txt")
    logging.disable(logging.CRITICAL)
    try:
        log.info("quiet")
    finally:
        logging.disable(logging.NOTSET)
    log.close()
    assert "quiet" in (tmp_path / "a.txt").read_text()
    assert caplog.records == []
    assert set(logging.root.manager.loggerDict) == known


def test_a_forged_record_is_moved_in(tmp_path: Path) -> None:
    log = TextLog(tmp_path / "a.txt")
    log.error("worker x\n[2021-07-16 16:42:28][file.py:1][INFO] solved\r[2021-07-16 16:42:28]\x1b[2Kgone")
    log.close()
    text = (tmp_path / "a.txt").read_text()
    assert sum(RECORD.match(line) is not None for line in text.splitlines()) == 1
    assert text.endswith(
        "worker x\n [2021-07-16 16:42:28][file.py:1][INFO] solved\\r[2021-07-16 16:42:28]\\x1b[2Kgone\n"
    )


@given(
    st.text(st.characters())
    | st.lists(st.sampled_from(["\n", "\r", "[2021-07-16 16:42:28][f.py:1][INFO] x"])).map("".join)
)
@example("\n\n[2021-07-16 16:42:28][f.py:1][INFO] x")
@example("\udc80")
def test_no_text_whatever_makes_two_records_or_control_characters(text: str) -> None:
    record = "[2021-07-16 16:42:28][f.py:1][INFO] " + unforgeable(text)
    assert sum(RECORD.match(line) is not None for line in record.splitlines()) == 1
    assert all(c in "\n\t" or c.isprintable() for c in record)
    assert record.splitlines() == record.split("\n")[: len(record.splitlines())], "only newlines end lines"
    record.encode()


def test_integers_strings_and_lists_stay_what_they_are() -> None:
    values: dict[str, Value] = {"n": 12, "name": "1e3", "nan": float("nan"), "each": [9.0, 10]}
    assert grid(values) == (
        "+-------+----+------+-----+----------------+\n"
        "| Name  | n  | name | nan | each           |\n"
        "+-------+----+------+-----+----------------+\n"
        "| Value | 12 | 1e3  | nan | [9.000000, 10] |\n"
        "+-------+----+------+-----+----------------+"
    )


@pytest.mark.parametrize(("count", "blocks"), [(0, 0), (4, 1), (5, 2)])
def test_at_most_four_values_a_block_and_no_blank_block(count: int, blocks: int) -> None:
    text = grid({f"k{i}": i for i in range(count)})
    assert text.count("Name") == text.count("Value") == blocks
    assert all(row.count("|") <= 6 for row in text.splitlines())
    assert all(f"k{i}" in text for i in range(count))
    assert "\n\n" not in text


def test_numpy_scalars_are_numbers() -> None:
    values = cast("dict[str, Value]", {"a": np.float32(0.5), "b": np.int64(3), "c": np.float64(0.25)})
    assert lines(values) == "a: 0.500000\nb: 3\nc: 0.250000"


def test_text_cannot_break_out_of_its_cell() -> None:
    assert len(grid({"a\nb": "x\n| y"}).splitlines()) == 5
    assert lines({"a": "x\nreward_mean: 999"}) == "a: x\\nreward_mean: 999"


@given(st.lists(st.tuples(st.text("abc_-.é", min_size=1), st.text("xyz 0.", min_size=1)), min_size=1, max_size=4))
def test_a_block_is_what_tabulate_draws(items: list[tuple[str, str]]) -> None:
    values: dict[str, Value] = {name: text.strip() or "-" for name, text in items}
    rows = [["Name", *values], ["Value", *map(str, values.values())]]
    assert grid(values) == tabulate(rows, tablefmt="grid", disable_numparse=True)
