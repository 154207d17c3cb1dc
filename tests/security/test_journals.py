"""Journals whose file is whole and whose content is made to harm: the run is not taken up, and the reason is told."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from functools import cache
from pathlib import Path

import pytest

from remuda.tests.security.decoders import DECODERS
from remuda.training.journal import RunJournal
from remuda.training.journal_database import JournalError

TABLES = ("memory", "part", "chunk", "lease", "place", "account", "counted", "episodes", "priorities")
DEEP, HALF_A_NUMBER = b"\x91" * 100_000, b"\x00\x01\x02"
FOUR_BILLION = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff")
"""Elements of an array, and of a map."""
BODIES: tuple[object, ...] = (DEEP, b"\x81\xa1x" + DEEP, *FOUR_BILLION, b"", "text", 7, HALF_A_NUMBER)


@cache
def honest() -> bytes:
    journal = next(decoder for decoder in DECODERS if decoder.name == "journal")
    with tempfile.TemporaryDirectory() as folder:
        return journal.honest(Path(folder))


@pytest.mark.parametrize("table", TABLES)
def test_it_is_refused(tmp_path: Path, table: str) -> None:
    for number, body in enumerate(BODIES):
        if table == "priorities" and body in (b"", DEEP):
            continue  # whole numbers, whichever bytes
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(honest())
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            if table == "priorities":
                db.execute("insert or replace into priorities values (0, 0, ?)", (body,))
            changed = db.execute(f"update {table} set body = ?", (body,)).rowcount
        assert changed > 0, "it holds nothing of the kind"
        with contextlib.closing(RunJournal(path)) as journal, pytest.raises(JournalError, match=path.name):
            journal.read()


def test_a_file_whose_damage_is_no_text_is_refused(tmp_path: Path) -> None:
    """SQLite quotes the name of the damaged table in its message, which Python then cannot read. atheris found it."""
    path = tmp_path / "journal.sqlite"
    damaged = (
        honest()
        .replace(b"tablememorymemory", b"table\xf9emorymemory")
        .replace(b"CREATE TABLE memory", b"CREATE TABLE ((((((")
    )
    assert damaged != honest()
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match=r"journal\.sqlite is damaged"):
        RunJournal(path)
