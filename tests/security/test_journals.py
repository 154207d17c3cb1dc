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
BODIES: dict[str, object] = {
    "deep": b"\x91" * 100_000,
    "deep in a field that nobody knows": b"\x81\xa1x" + b"\x91" * 100_000,
    "an array of four billion": b"\xdd\xff\xff\xff\xff",
    "a map of four billion": b"\xdf\xff\xff\xff\xff",
    "nothing": b"",
    "another kind": "text",
    "a number": 7,
    "half a number": b"\x00\x01\x02",
}


@cache
def honest() -> bytes:
    journal = next(decoder for decoder in DECODERS if decoder.name == "journal")
    with tempfile.TemporaryDirectory() as folder:
        return journal.honest(Path(folder))


def rows_of(path: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return int(db.execute(f"select count(*) from {table}").fetchone()[0])


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("table", TABLES)
def test_it_is_refused(tmp_path: Path, table: str, body: object) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(honest())
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        if table == "priorities":
            db.execute("insert or replace into priorities values (0, 0, ?)", (body,))
        db.execute(f"update {table} set body = ?", (body,))
    if not rows_of(path, table) or (table == "priorities" and body in (b"", b"\x91" * 100_000)):
        pytest.skip("nothing of the kind is in it, or any bytes are numbers")
    with contextlib.closing(RunJournal(path)) as journal, pytest.raises(JournalError, match=r"journal\.sqlite"):
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
