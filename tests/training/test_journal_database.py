"""One process at a time opens the database of a journal; a change is committed as a whole; others see it is open."""

from __future__ import annotations

import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from remuda.training import journal_database
from remuda.training.journal_database import JournalDamagedError, JournalError, committing, is_open, open_database

TABLES = "create table if not exists number (value integer);"


def test_nobody_else_opens_it_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_database, "BUSY_S", 0.05)
    path = tmp_path / "journal.sqlite"
    with closing(open_database(path, TABLES)), pytest.raises(JournalError, match="locked"):
        open_database(path, TABLES)
    open_database(path, TABLES).close()


def test_it_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    open_database(path, TABLES).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"# nothing like it\n" * 300)
    with pytest.raises(JournalDamagedError, match=r"journal\.sqlite is damaged: file is not a database"):
        open_database(path, TABLES)


def test_a_change_that_fails_is_not_half_there(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(open_database(path, TABLES)) as database:
        with committing(database, path):
            database.execute("insert into number values (1)")
        with pytest.raises(JournalError, match=r"journal\.sqlite cannot be written: "), committing(database, path):
            database.executemany("insert into number values (?)", [(2,), (object(),)])  # the second cannot be stored
    with closing(open_database(path, TABLES)) as again:
        assert again.execute("select value from number").fetchall() == [(1,)]


HOLDER = """
import sys
from pathlib import Path
from remuda.training.journal_database import open_database
database = open_database(Path(sys.argv[1]), "create table if not exists number (value integer);")
print("open", flush=True)
sys.stdin.readline()
database.close()
print("closed", flush=True)
sys.stdin.readline()
"""


@pytest.mark.processes
def test_others_can_tell_whether_a_journal_is_open_and_leave_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    assert not is_open(path), "there is none"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        assert [is_open(path), is_open(path)] == [True, True]
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "closed\n"
        assert not is_open(path)
        holder.stdin.write("\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["journal.sqlite"]


@pytest.mark.processes
def test_the_journal_of_a_killed_process_is_not_open(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        holder.kill()
        holder.wait()
    assert not is_open(path)
