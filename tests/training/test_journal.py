"""The journal gives back what was committed, whatever happened after, and belongs to one process."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace as altered
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from remuda.buffer.chunk import reanalysis_name
from remuda.buffer.index import Prioritized
from remuda.tests.buffer.chunks import WORKER, meta_of
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import Journaled, World
from remuda.tests.patience import HANG_S
from remuda.training import journal, journal_database
from remuda.training.journal import (
    RunJournal,
    is_queued,
    journaled_policies,
    open_for_policies,
    read_policies,
    together,
)
from remuda.training.journal_database import JournalError, committing, is_open, open_database
from remuda.training.journal_entry import JournalEntry, Recovered
from remuda.training.run_snapshot import Changes, Rows
from remuda.training.snapshot import AskedSnapshot, DeathsSnapshot, ReanalysisRow, ReanalysisSnapshot
from remuda.wire.messages import ExperimentState, IndexedChunk, IndexedReanalysis, PolicyRef, Reanalysis, ReanalysisId

pytestmark = pytest.mark.xdist_group("what a coordinator wrote")


@pytest.fixture(scope="module")
def entries() -> list[JournalEntry]:
    """What a coordinator wrote, turn by turn, over half a run."""
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    written: list[JournalEntry] = []
    journal_entries = world.coordinator.journal_entries

    def note(now_s: float) -> list[JournalEntry]:
        news = journal_entries(now_s)
        written.extend(news)
        return news

    world.coordinator.journal_entries = note  # type: ignore[method-assign]
    for _ in range(30):
        world.step()
    assert any(turn.added for turn in written)
    return written


def chunks(*first_rows: int) -> tuple[IndexedChunk, ...]:
    return tuple(IndexedChunk(row, meta_of(row, 10)) for row in first_rows)


def open_or_begin(path: Path) -> tuple[RunJournal, Recovered | None, str | None]:
    """Of a run with one policy."""
    ((journal, found),), damage = open_for_policies(path, [""])
    return journal, found, damage


def read(path: Path) -> Recovered | None:
    with closing(RunJournal(path)) as book:
        return book.read()


@pytest.mark.parametrize("together", [2, 1_000])
def test_turns_in_one_commit_are_read_as_apart(tmp_path: Path, entries: list[JournalEntry], together: int) -> None:
    with closing(RunJournal(tmp_path / "apart.sqlite")) as apart, closing(RunJournal(tmp_path / "one.sqlite")) as one:
        for turn in entries:
            apart.write(turn)
        for first in range(0, len(entries), together):
            turns = entries[first : first + together]
            one.write(*turns)
            shared = one.read()
            assert shared is not None
            assert given(shared) == [row for turn in turns for row in given(turn)]
    assert len(entries) > 7
    assert any(given(turn) for turn in entries[::2]), "the first of two turns gives rows too"
    found, expected = read(tmp_path / "one.sqlite"), read(tmp_path / "apart.sqlite")
    assert found is not None
    assert expected is not None
    assert without_given(found) == without_given(expected)


def given(journaled: JournalEntry | Recovered) -> list[int]:
    """Rows of progress.txt, by number."""
    return [row.epoch for row in journaled.snapshot.experiment.progress.given]


def without_given(found: Recovered) -> Recovered:
    experiment = found.snapshot.experiment
    experiment = replace(experiment, progress=replace(experiment.progress, given=[]))
    return altered(found, snapshot=replace(found.snapshot, experiment=experiment))


def test_what_was_written_is_read_by_the_next_one(tmp_path: Path, entries: list[JournalEntry]) -> None:
    first = RunJournal(tmp_path / "journal.sqlite")
    expected = Journaled()
    for turn in entries:
        first.write(turn)
        expected.write(turn)
    first.close()
    assert [path.name for path in tmp_path.iterdir()] == ["journal.sqlite"], "one file when nobody has it open"
    second = RunJournal(tmp_path / "journal.sqlite")
    found = second.read()
    second.close()
    assert found is not None
    assert found == expected.recovered()
    assert len(found.snapshot.experiment.leases.leases) == 4


def write_state(path: Path, entries: list[JournalEntry], state: ExperimentState, policy: str = "") -> None:
    snapshot = entries[0].snapshot
    with closing(RunJournal(path, policy=policy)) as journal, together([journal]):
        journal.write(JournalEntry("x", replace(snapshot, experiment=replace(snapshot.experiment, state=state))))


def test_a_closed_journal_tells_whether_its_run_waits(tmp_path: Path, entries: list[JournalEntry]) -> None:
    path = tmp_path / "a # journal?.sqlite"  # characters that mean something in a URI
    assert not is_queued(path), "there is none"
    write_state(path, entries, "queued")
    assert is_queued(path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name], "it leaves no trace"
    log_of_writes = path.with_name(f"{path.name}-wal")
    log_of_writes.write_bytes(b"")
    assert not is_queued(path), "killed: what it wrote last is in its log of writes"
    log_of_writes.unlink()
    write_state(path, entries, "stopped")
    assert not is_queued(path)
    path.write_bytes(b"# nothing like it\n" * 300)
    assert not is_queued(path)


def test_a_run_with_several_policies_waits_while_all_wait(tmp_path: Path, entries: list[JournalEntry]) -> None:
    path, policies = tmp_path / "journal.sqlite", ["hare", "owl_2"]
    assert read_policies(path) == {}, "there is no journal"
    ((first, _), *_), _ = open_for_policies(path, policies)
    first.close()
    assert (journaled_policies(path), read_policies(path)) == (policies, {})
    assert not is_queued(path)
    begun = tmp_path / ".begun_0000-1111"
    begun.touch()
    assert is_queued(path)
    begun.unlink()
    for policy in policies:
        write_state(path, entries, "queued", policy)
    assert is_queued(path)
    assert [found.snapshot.experiment.state for found in read_policies(path).values()] == ["queued", "queued"]
    write_state(path, entries, "running", "owl_2")
    assert not is_queued(path)


def reanalysis(first_row: int, number: int) -> IndexedReanalysis:
    id, chunk = ReanalysisId(WORKER, 1, number), meta_of(first_row, 8).chunk
    return IndexedReanalysis(
        number, Reanalysis(id, reanalysis_name(id), chunk, first_row, 8, PolicyRef(1, number, 10 * number), 50, 7)
    )


def test_reanalyses_and_deaths_are_read_by_the_next(tmp_path: Path, entries: list[JournalEntry]) -> None:
    snapshot = entries[-1].snapshot
    asked = AskedSnapshot(9, 3, IndexedChunk(16, meta_of(16, 8)), PolicyRef(1, 4, 40), reanalysis(16, 4).meta)
    book = ReanalysisSnapshot([PolicyRef(1, 4, 40)], 3, 24, PolicyRef(1, 3, 30), 32, 0.5, [(9, 3)], [asked])
    deaths = [DeathsSnapshot("collector", 3, 2.5, [("w1", "signal 6 (SIGABRT)")])]
    snapshot = replace(snapshot, experiment=replace(snapshot.experiment, reanalysis=book, deaths=deaths))
    rows = [ReanalysisRow(reanalysis(first_row, number)) for first_row, number in ((0, 1), (8, 2), (8, 3), (24, 4))]
    with closing(RunJournal(tmp_path / "journal.sqlite")) as journal:
        journal.write(JournalEntry("x", snapshot, Changes(reanalysis=Rows((ReanalysisRow(reanalysis(40, 1)),)))))
        journal.write(JournalEntry("x", snapshot, Changes(reanalysis=Rows(tuple(rows[:2])), whole=True)))
        journal.write(JournalEntry("x", snapshot, Changes(reanalysis=Rows((rows[2], rows[3]), (0,)))))
    found = read(tmp_path / "journal.sqlite")
    assert found is not None
    assert found.snapshot.experiment.reanalysis == replace(book, newest=rows[2:])
    assert found.snapshot.experiment.deaths == deaths


def test_a_journal_without_deaths_and_reanalyses_is_read(tmp_path: Path, entries: list[JournalEntry]) -> None:
    with closing(RunJournal(tmp_path / "journal.sqlite")) as book:
        book.write(entries[-1])
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db:
        db.execute("delete from part where name in ('deaths', 'reanalysis')")
        db.execute("drop table reanalysis")
        db.commit()
    found = read(tmp_path / "journal.sqlite")
    assert found is not None
    assert found.snapshot.experiment.reanalysis == ReanalysisSnapshot()
    assert found.snapshot.experiment.deaths == []


def test_priorities_and_gone_chunks(
    tmp_path: Path, entries: list[JournalEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "ROWS_PER_STATEMENT", 2)
    snapshot = entries[-1].snapshot
    book = RunJournal(tmp_path / "journal.sqlite")
    known = Prioritized(10, np.array([0.5, np.nan, 2.0], np.float32))
    book.write(JournalEntry("x", snapshot, added=chunks(0, 10, 20, 40, 50), priorities=known))
    book.write(JournalEntry("x", snapshot, added=chunks(30), gone=(0, 20, 40, 50)))
    found = book.read()
    book.clear()
    assert book.read() is None
    book.write(JournalEntry("x", snapshot))
    again = book.read()
    book.close()
    assert again is not None
    assert (again.snapshot.identity, again.chunks, again.priorities) == (snapshot.identity, (), None)
    assert found is not None
    assert found.priorities is not None
    assert [chunk.first_row for chunk in found.chunks] == [10, 30]
    assert found.priorities.first_row == 10
    np.testing.assert_array_equal(found.priorities.priorities, known.priorities)


@pytest.mark.parametrize("table", ["chunk", "memory", "part", "lease"])
def test_a_damaged_row_is_never_read_as_truth(tmp_path: Path, entries: list[JournalEntry], table: str) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(RunJournal(path)) as book:
        book.write(*entries)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"update {table} set body = x'c1'")
        db.commit()
    with pytest.raises(JournalError, match=r"journal\.sqlite is damaged"):
        read(path)


WRITER = """
import sys
from pathlib import Path
import msgspec
from remuda.training.journal_entry import (JournalEntry)
from remuda.training.journal import RunJournal
from remuda.training.run_snapshot import (RunSnapshot)
from remuda.training.snapshot import DeathsSnapshot
from remuda.tests.buffer.chunks import meta_of
from remuda.wire.messages import IndexedChunk
memory = msgspec.msgpack.decode(Path(sys.argv[2]).read_bytes(), type=RunSnapshot)
book = RunJournal(Path(sys.argv[1]))
row = 0
while True:
    book.write(JournalEntry("x", memory, added=(IndexedChunk(row, meta_of(row // 10, 10)),)))
    print(row, flush=True)
    row += 10
"""


@pytest.mark.processes
def test_what_was_acknowledged_survives_sigkill(tmp_path: Path, entries: list[JournalEntry]) -> None:
    snapshot = tmp_path / "memory"
    snapshot.write_bytes(msgspec.msgpack.encode(entries[-1].snapshot))
    path = tmp_path / "journal.sqlite"
    typing = Path(__file__).parents[3] / ".typing"
    acknowledged = -10
    for kill_after in (3, 40, 200):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(snapshot)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(typing)},
        ) as writer:
            assert writer.stdout is not None
            for _ in range(kill_after):
                acknowledged = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        book = RunJournal(path)
        found = book.read()
        book.close()
        assert found is not None
        assert {chunk.first_row for chunk in found.chunks} >= set(range(0, acknowledged + 1, 10))


def test_a_resumed_run_begins_another_journal_after_damage(tmp_path: Path, entries: list[JournalEntry]) -> None:
    """The old one is kept, and nothing of it is read; one that another process has, or another version wrote, stays."""
    path = tmp_path / "journal.sqlite"
    first, found, damage = open_or_begin(path)
    assert (found, damage) == (None, None)
    first.write(JournalEntry("x", entries[-1].snapshot, added=chunks(0, 10)))
    first.close()
    second, found, damage = open_or_begin(path)
    second.close()
    assert found is not None
    assert (found.chunks, damage) == (chunks(0, 10), None)
    path.write_bytes(b"# nothing like it\n" * 300)
    Path(f"{path}-wal").write_bytes(b"whatever")
    third, found, damage = open_or_begin(path)
    third.close()
    assert found is None
    assert damage is not None
    assert "journal.sqlite is damaged: " in damage
    assert "kept as journal.sqlite.damaged" in damage
    assert not Path(f"{path}-wal").exists(), "a journal does not find the writes of another beside it"
    assert path.with_name("journal.sqlite.damaged").read_bytes() == b"# nothing like it\n" * 300
    assert read(path) is None
    with closing(RunJournal(path)) as book:
        book.write(JournalEntry("x", replace(entries[-1].snapshot, format=99)))
    with pytest.raises(JournalError, match="resume with the version that wrote it"):
        open_or_begin(path)
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["journal.sqlite", "journal.sqlite.damaged"]


def test_a_turn_writes_what_changed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn in which one chunk came wrote ten KiB with sixty of them."""
    stop = {"max_env_steps": 1_000_000}
    world = World(config(collector={"count": 20, "chunk_env_steps": 64}, stop=stop))
    world.beat_interval_s = 5.0
    written: list[JournalEntry] = []
    journal_entries = world.coordinator.journal_entries

    def note(now_s: float) -> list[JournalEntry]:
        news = journal_entries(now_s)
        written.extend(news)
        return news

    monkeypatch.setattr(world.coordinator, "journal_entries", note)
    world.herd(collectors=20)
    world.submit()
    while world.unique_env_steps() < 64 * 100:
        world.step()
    one_chunk = [turn for turn in written if len(turn.added) == 1 and turn.priorities is None]
    assert len(one_chunk) > 30
    path = tmp_path / "journal.sqlite"
    with closing(RunJournal(path)) as book:
        for turn in written:
            book.write(turn)
    sizes = [sum(len(row) for row in rows_of(turn)) for turn in one_chunk]
    assert max(sizes) < 300
    assert max(len(rows_of(turn)) for turn in one_chunk) <= 3


def rows_of(turn: JournalEntry) -> list[bytes]:
    """As they are written."""
    changes = turn.changes
    kinds = (changes.lease, changes.place, changes.account, changes.counted, changes.rest)
    return [msgspec.msgpack.encode(row) for rows in kinds for row in rows.put]


def test_what_was_given_out_to_be_written_is_never_changed_later(entries: list[JournalEntry]) -> None:
    """Another thread may write it while the coordinator goes on."""
    world = World(config())
    given: list[tuple[JournalEntry, bytes]] = []
    journal_entries = world.coordinator.journal_entries

    def note(now_s: float) -> list[JournalEntry]:
        news = journal_entries(now_s)
        given.extend((each, encoded(each)) for each in news)
        return news

    world.coordinator.journal_entries = note  # type: ignore[method-assign]
    world.herd(collectors=2)
    world.submit()
    world.run(1_000)
    assert len(given) > 50
    assert all(encoded(each) == before for each, before in given)


def encoded(turn: JournalEntry) -> bytes:
    known = None if turn.priorities is None else turn.priorities.priorities.tobytes()
    return msgspec.msgpack.encode([turn.snapshot, turn.changes, turn.added, turn.gone, turn.episodes, known])


def test_a_part_that_a_disk_refused_is_written_the_next_time(tmp_path: Path, entries: list[JournalEntry]) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(RunJournal(path)) as book:
        book.write(entries[0])
        with closing(sqlite3.connect(":memory:")) as broken, pytest.MonkeyPatch.context() as patch:
            patch.setattr(book._database, "connection", broken)  # pyright: ignore[reportPrivateUsage]
            with pytest.raises(JournalError, match="cannot be written"):
                book.write(entries[-1])
        book.write(entries[-1])
        found = book.read()
    assert found is not None
    assert found.snapshot.experiment.flow.policy == entries[-1].snapshot.experiment.flow.policy


@pytest.mark.parametrize(("taken", "replaced"), [(("",), True), (("-wal",), False), (("", "-wal"), True)])
def test_a_file_that_was_taken_away_is_put_back_with_all_that_was_written(
    tmp_path: Path, entries: list[JournalEntry], taken: tuple[str, ...], replaced: bool
) -> None:
    path, elsewhere = tmp_path / "journal.sqlite", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with closing(RunJournal(path)) as book:
        book.write(*entries[:-1])
        assert book.put_back() is None
        for end in taken:
            Path(f"{path}{end}").unlink()
            if replaced:
                Path(f"{path}{end}").write_text("somebody else's")
        book.write(entries[-1])
        said = book.put_back()
        assert said == f"{path} was removed or replaced: a complete copy is back in its place"
        assert book.put_back() is None
        written = book.read()
        for end in ("", "-wal"):  # as a process that is killed now leaves it
            shutil.copy(f"{path}{end}", elsewhere)
        assert path.stat().st_mode & 0o777 == 0o600
    assert written is not None
    assert written.snapshot.experiment.wall_s == entries[-1].snapshot.experiment.wall_s
    assert read(path) == read(elsewhere / path.name) == written
    kept = {f"{path.name}.replaced{end}" for end in taken} if replaced else set[str]()
    assert {file.name for file in tmp_path.iterdir()} == {path.name, "elsewhere", *kept}


READ_AT_ONCE = """
import sys, threading
from pathlib import Path
from remuda.training.journal import RunJournal
paths = sys.argv[1:]
started = threading.Barrier(len(paths))
def read(path):
    book = RunJournal(Path(path))
    started.wait()
    assert book.read() is not None
    book.close()
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=read, args=(path,)) for path in paths]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.processes
def test_many_threads_may_be_the_first_to_read_one(tmp_path: Path, entries: list[JournalEntry]) -> None:
    """A coordinator that was started again with three runs was killed by SIGSEGV: msgspec finds out about a class when
    it is first decoded, and does not expect two threads to do that at once."""
    paths = [tmp_path / f"{number}.sqlite" for number in range(4)]
    for path in paths:
        with closing(RunJournal(path)) as book:
            for turn in entries:
                book.write(turn)
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-c", READ_AT_ONCE, *map(str, paths)], capture_output=True, text=True, timeout=HANG_S
        )
        assert done.returncode == 0, done.stderr


def of_one_policy(policy: str, path: Path, beside: RunJournal | None = None) -> RunJournal:
    return RunJournal(path, policy=policy, beside=beside)


def test_policies_of_a_run_share_a_file_and_nothing_else(tmp_path: Path, entries: list[JournalEntry]) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(of_one_policy("one", path)) as one:
        two = of_one_policy("two", path, one)
        with together([one, two]):
            one.write(*entries)
            two.write(entries[0])
        assert one.read() != two.read()
        two.close()
        assert one.put_back() is None, "the file is open, and as it was"
        one.write(*entries)
    journals, damage = open_for_policies(path, ["two", "one"])
    with closing(journals[0][0]):
        assert damage is None
        found = [known for _, known in journals]
    alone = tmp_path / "alone.sqlite"
    with closing(RunJournal(alone)) as book:
        book.write(*entries)
        assert repr(found[1]) == repr(book.read())


def fail_after(one: RunJournal, two: RunJournal, entries: list[JournalEntry]) -> None:
    with together([one, two]):
        one.write(*entries)
        raise OSError("the disk is full")


def test_what_is_written_together_is_committed_together(tmp_path: Path, entries: list[JournalEntry]) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(of_one_policy("one", path)) as one:
        two = of_one_policy("two", path, one)
        with together([one, two]):
            one.write(entries[0])
            two.write(entries[0])
        before = repr([one.read(), two.read()])
        with pytest.raises(OSError, match="the disk is full"):
            fail_after(one, two, entries)
        assert repr([one.read(), two.read()]) == before
        with together([one, two]):
            one.write(*entries)
            two.write(*entries)
        assert repr(one.read()) == repr(two.read()) != before, "every part is written again"


TABLES = "create table if not exists number (value integer);"


def test_nobody_else_opens_it_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_database, "BUSY_S", 0.05)
    path = tmp_path / "journal.sqlite"
    with closing(open_database(path, TABLES)), pytest.raises(JournalError, match="locked"):
        open_database(path, TABLES)
    open_database(path, TABLES).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "its owner alone reads it"


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
        holder.kill()
    assert [entry.name for entry in tmp_path.iterdir()] == ["journal.sqlite"]
