"""A run in a bucket: what is restored is a moment of the run, whatever the store does and whoever writes."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.storage.bucket.address import BucketError, LocalFolder, address_of, local_folder, read_mark
from remuda.storage.bucket.generation import KEPT
from remuda.storage.bucket.opening import OccupiedError, open_run, restore, restore_found
from remuda.storage.bucket.shipper import MovedError, Shipped, Shipper, claim
from remuda.storage.bucket.snapshot import copy_database
from remuda.storage.bucket.store import Retries, Store
from remuda.storage.existing_folder import OnExists
from remuda.tests.faults.sizes import LONG
from remuda.tests.storage.faulty_bucket import FaultyObjects, store_of
from remuda.training.journal_database import open_database


class Run:
    """A run in small: counted chunks in a journal, a payload file for each of the last four, and a log that grows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("data", "log", "ckpt"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        self.db = open_database(root / "journal.sqlite", "create table if not exists chunk (n integer, file text);")

    def count(self, number: int) -> None:
        """Write a payload, count it in the journal, delete the one that goes for it, and say so in the log."""
        (self.root / "data" / f"{number}.bin").write_bytes(b"%d" % number * 1_000)
        with self.db:
            self.db.execute("insert into chunk values (?, ?)", (number, f"{number}.bin"))
            self.db.execute("update chunk set file = null where n <= ?", (number - 4,))
        (self.root / "data" / f"{number - 4}.bin").unlink(missing_ok=True)
        with (self.root / "log" / "text.txt").open("a") as log:
            log.write(f"counted {number} " + "." * 500 + "\n")

    def close(self) -> None:
        self.db.close()


def counted(root: Path) -> int:
    """The number of counted chunks; every live payload has its content, and the log tells of no fewer chunks."""
    with closing(sqlite3.connect(root / "journal.sqlite")) as db:
        rows = db.execute("select n, file from chunk").fetchall()
    for number, file in rows:
        if file is not None:
            assert (root / "data" / file).read_bytes() == b"%d" % number * 1_000
    assert [number for number, _ in rows] == list(range(len(rows)))
    return len(rows)


def shipper_of(store: Store, root: Path, name: str = "one") -> Shipper:
    return Shipper(store, root, read_mark(root) or claim(store, root, name, "s3://bucket/run"), say=lambda line: None)


@settings(max_examples=15)
@given(seed=st.integers(0, 1 << 30), rate=st.sampled_from([0.0, 0.05, 0.2]))
def test_a_store_gives_back_the_newest_moment(seed: int, rate: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    """503s, lost answers, torn objects that nobody is told of, late reads and listings, and a shipper that is killed:
    counters and files are those of the last shipped moment, or of a newer one whose answer was lost."""
    folder = tmp_path_factory.mktemp("bucket")
    chance = random.Random(seed)
    objects = FaultyObjects(chance, rate=rate)
    store, run = store_of(objects), Run(folder / "run")
    with closing(run):
        shipper, sure, number = shipper_of(store, run.root), 0, 0
        for turn in range(5):
            for _ in range(chance.randrange(4)):
                run.count(number)
                number += 1
            with suppress(OSError, BucketError):
                if isinstance(shipper.ship(), Shipped):
                    sure = number
            if chance.random() < 0.3:  # the shipper was killed
                shipper = shipper_of(store, run.root)
            with suppress(BucketError):  # as seen while the store is busy: older maybe, but a moment of the run
                early = folder / f"early_{turn}"
                if restore(store, early, lambda line: None) is not None:
                    assert counted(early) <= number
            objects.settle()
            there = folder / f"there_{turn}"
            if restore(store, there, lambda line: None) is not None:
                assert sure <= counted(there) <= number
            else:
                assert sure == 0
            objects.rate = rate


ADDRESS = "s3://bucket/run"
Moment = tuple[int, dict[str, bytes]]
"""Counted chunks, and the files besides the journal."""


def moment_of(root: Path) -> Moment:
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("journal"))
    return counted(root), {str(path.relative_to(root)): path.read_bytes() for path in files}


@dataclass
class Machine:
    """A machine that opens the run, and ships a moment after each counted chunk."""

    objects: FaultyObjects
    root: Path
    moments: list[Moment] = field(default_factory=list[Moment])
    """What it, or a machine before it, has shipped, or was about to ship."""
    sure: int = 0
    """So many of them are in the bucket, as far as it was told."""

    @property
    def store(self) -> Store:
        return store_of(self.objects)

    def live(self, ships: int, on_exists: OnExists = "resume") -> None:
        """Open the run, begun or continued, and ship. Raises MovedError."""
        store, owner = self.store, self.root.parent.name
        mark = open_run(store, ADDRESS, LocalFolder(self.root), on_exists, owner, print)
        self.ship = Shipper(store, self.root, mark, say=print).ship
        with closing(Run(self.root)) as run:
            (self.root / "config.json").write_text("{}")
            for _ in range(ships):
                ((number,),) = run.db.execute("select count(*) from chunk")
                run.count(number)
                # what the first generation had and the next ones have not, a continued run has again
                (self.root / "turn.txt").write_text("first" if number % (KEPT + 1) == 0 else "other")
                run.close()
                self.moments.append(moment_of(self.root))
                run.db = Run(self.root).db
                self.ship()
                self.sure = len(self.moments)


class WatchedObjects(FaultyObjects):
    """Calls `act` before the operation with the number `at`, and before all later ones until there is no `act`."""

    def __init__(self, at: int = -1, act: Callable[[], None] | None = None) -> None:
        super().__init__(random.Random(0))
        self.at, self.act = at, act
        self.asked: list[str] = []
        """The operations until now."""

    def _busy(self) -> None:
        self.asked.append(sys._getframe(1).f_code.co_name)  # pyright: ignore[reportPrivateUsage]
        if self.act is not None and len(self.asked) > self.at >= 0:
            self.act()


def points(asked: Sequence[str]) -> list[int]:
    """Operations before which something happens: all of them in the long form, else some, and among them deletions."""
    if LONG:
        return [*range(len(asked))]
    deletions = [number for number, name in enumerate(asked) if name == "rm_file"]
    return sorted({*random.Random(0).sample(range(len(asked)), 6), *deletions[::3]})


class KilledError(BaseException):
    """The machine is gone."""


def test_a_machine_that_is_killed_between_any_two_operations_leaves_a_moment_of_its_run(tmp_path: Path) -> None:
    """Not a mixture of two, and none older than the last that it was told is there. The next machine goes on from it,
    also if the former one died while it took the run over or tidied up."""

    def lives(objects: FaultyObjects, folder: Path) -> Machine:
        machine = Machine(objects, folder / "first" / "run")
        with suppress(KilledError):
            machine.live(KEPT + 1, "error")
            machine.root = folder / "second" / "run"
            machine.live(KEPT + 1)
        return machine

    def die() -> None:
        raise KilledError

    whole = WatchedObjects()
    lives(whole, tmp_path / "whole")
    for at in points(whole.asked):
        folder, objects = tmp_path / f"{at}", WatchedObjects(at, die)
        killed = lives(objects, folder)
        objects.act = None
        if restore(killed.store, folder / "there", print) is None:
            assert not killed.sure, at
            continue
        assert moment_of(folder / "there") in killed.moments[max(killed.sure - 1, 0) :], at
        last = Machine(objects, folder / "third" / "run")
        last.live(1)
        restore(last.store, folder / "end", print)
        assert moment_of(folder / "end") == last.moments[-1], at


def test_an_old_machine_cannot_change_a_run_that_was_continued_elsewhere(tmp_path: Path) -> None:
    """The other machine takes the run over between any two operations of the old one, which goes on then, and ends."""
    whole = WatchedObjects()
    Machine(whole, tmp_path / "whole" / "first" / "run").live(KEPT + 2, "error")
    for at in points(whole.asked):
        folder, objects = tmp_path / f"{at}", WatchedObjects(at)
        old, other = (Machine(objects, folder / name / "run") for name in ("first", "second"))

        def take_over(objects: WatchedObjects = objects, old: Machine = old, other: Machine = other) -> None:
            objects.act = None
            if old.sure:
                other.live(1)

        objects.act = take_over
        with suppress(MovedError):
            old.live(KEPT + 2, "error")
        if other.sure:
            with pytest.raises(MovedError, match="continued from the bucket"):
                old.ship()
        restore(old.store, folder / "end", print)
        assert moment_of(folder / "end") == (other.moments or old.moments)[-1], at


class KeysOfOneRun(FaultyObjects):
    """A store whose keys are for nothing but bucket/run/other."""

    def cat_file(self, path: str) -> bytes:
        if not path.startswith("bucket/run/other/"):
            raise PermissionError(path)
        return super().cat_file(path)


def test_a_living_machine_keeps_its_run_whatever_the_clock_of_another_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machines' clocks differ by a day, and the bucket's clock counts."""
    objects = FaultyObjects(random.Random(0))
    store, here = store_of(objects), LocalFolder(tmp_path / "two")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.json").write_text("{}")
    shipper, ahead_s, lives = shipper_of(store, tmp_path / "one"), time.time() + 86_400.0, True
    shipper.ship(next_s=30.0)

    def sleep(seconds: float) -> None:
        objects.now_s += seconds
        if lives:
            shipper.ship(next_s=30.0)

    monkeypatch.setattr(time, "time", lambda: ahead_s)
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(BucketError, match="is alive: stop that run first"):
        open_run(store, ADDRESS, here, "resume", "two", print)
    lives, begun_s = False, objects.now_s
    assert open_run(store, ADDRESS, here, "resume", "two", print).epoch == 2
    assert objects.now_s - begun_s == 90.0
    assert not any(path.endswith("clock") for path in objects.content)


def test_a_run_of_a_coordinator_is_continued_by_a_coordinator_alone(tmp_path: Path) -> None:
    """On any machine, also on its own before the run was copied; others may have addresses of their own beside it."""
    objects = FaultyObjects(random.Random(0))
    herd = LocalFolder(tmp_path / "here" / "run", has_runs=True)
    store = store_of(objects)
    mark = open_run(store, ADDRESS, herd, "resume", "one", print)
    herd.root.mkdir()
    with closing(open_database(herd.main, "create table if not exists run (run_dir text);")):
        pass
    with closing(Run(herd.root / "first")) as run:
        (run.root / "config.json").write_text("{}")
        run.count(0)

    def begin(root: Path, name: str, on_exists: OnExists, objects: FaultyObjects = objects) -> None:
        at = store_of(objects, f"bucket/run{name}")
        open_run(at, f"{ADDRESS}{name}", LocalFolder(root), on_exists, "two", print)

    with pytest.raises(OccupiedError, match="a run of a coordinator"):
        begin(herd.root / "first", "/first", "error")
    Shipper(store, herd.root, mark, say=print).ship()
    choices: list[OnExists] = ["error", "force", "resume"]
    for on_exists in choices:
        with pytest.raises(OccupiedError, match="a run of a coordinator"):
            begin(tmp_path / "there" / "first", "/first", on_exists)
    with pytest.raises(OccupiedError, match="holds the runs of a coordinator, and not a run"):
        begin(tmp_path / "there" / "run", "", "resume")
    begin(tmp_path / "there" / "other", "/other", "error")
    begin(tmp_path / "elsewhere" / "other", "/other", "error", KeysOfOneRun(random.Random(0)))
    restore(store, tmp_path / "copy", print, below="first/")
    assert moment_of(tmp_path / "copy") == moment_of(run.root)


def test_a_missing_run_is_named_with_keys_for_its_address_alone(tmp_path: Path) -> None:
    for name, why in (("other", "run/other holds no run, and the keys do not permit"), ("first", "no permission")):
        store = store_of(KeysOfOneRun(random.Random(0)), f"bucket/run/{name}")
        with pytest.raises(BucketError, match=why):
            restore_found(store, f"{ADDRESS}/{name}", tmp_path / name, print)


def test_a_damaged_generation_gives_way_to_the_one_before(tmp_path: Path) -> None:
    objects = FaultyObjects(random.Random(0))
    store, said = store_of(objects), list[str]()
    with closing(Run(tmp_path / "run")) as run:
        shipper = shipper_of(store, run.root)
        for number in range(2):
            before = set(objects.content)
            run.count(number)
            shipper.ship()
    newest = next(name for name in set(objects.content) - before if "/parts/" in name)
    objects.content[newest] = objects.content[newest][:-1]
    restore(store, tmp_path / "back", said.append)
    assert counted(tmp_path / "back") == 1
    assert "damaged" in said[0]


def test_a_bucket_does_not_grow_with_the_age_of_a_run(tmp_path: Path) -> None:
    """Objects of former generations go, and appended logs are sent a few times each, not with every generation."""
    objects = FaultyObjects(random.Random(0))
    store, sizes, sent = store_of(objects), list[int](), 0
    with closing(Run(tmp_path / "run")) as run:
        (run.root / "config.json").write_text('{"storage": {"payloads": "none"}}')
        shipper = shipper_of(store, run.root)
        run.count(0)
        for number in range(40):
            (run.root / "ckpt" / f"{number}").write_bytes(b"%d" % number)
            (run.root / "ckpt" / f"{number - 1}").unlink(missing_ok=True)
            with (run.root / "log" / "text.txt").open("a") as file:
                file.write(f"line {number} {'.' * 500}\n")
            shipped = shipper.ship()
            assert shipped is not None
            sent += shipped.new_bytes
            sizes.append(len(objects.content))
        log = (run.root / "log" / "text.txt").stat().st_size
    assert sent < 8 * log  # sent whole each time it would be 20
    assert max(sizes[20:]) <= max(sizes[:20]) + 6
    assert not any(name.endswith(".bin") for name in restored_names(store, tmp_path / "back"))


def restored_names(store: Store, root: Path) -> set[str]:
    restore(store, root, lambda line: None)
    return {path.name for path in root.rglob("*")}


@pytest.mark.processes
def test_a_journal_is_copied_while_its_owner_writes(tmp_path: Path, forked_writer: Path) -> None:
    """Each copy is a whole moment, and none is older than the copy before."""
    last = -1
    for number in range(20):
        copy = tmp_path / f"copy_{number}"
        assert copy_database(forked_writer, copy)
        with closing(sqlite3.connect(copy)) as db:
            counts = db.execute("select a, b from twin").fetchone()
        assert counts[0] == counts[1] >= last
        last = counts[0]


@pytest.fixture
def forked_writer(tmp_path: Path) -> object:
    """A journal that a process changes without end, in transactions of two changes."""
    path = tmp_path / "journal.sqlite"
    child = os.fork()
    if child == 0:
        db = open_database(path, "create table twin (a integer, b integer); insert into twin values (0, 0);")
        while True:
            with db:
                db.execute("begin")
                db.execute("update twin set a = a + 1")
                db.execute("update twin set b = b + 1")
    ready = False
    while not ready:
        with suppress(BucketError, sqlite3.Error):
            copy_database(path, tmp_path / "first")
            with closing(sqlite3.connect(tmp_path / "first")) as db:
                ready = db.execute("select a from twin").fetchone() is not None
    yield path
    os.kill(child, 9)
    os.waitpid(child, 0)


def test_an_address_survives_being_a_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REMUDA_CACHE_DIR", str(tmp_path))
    assert address_of(Path("s3://bucket/runs/x")) == "s3://bucket/runs/x" == address_of("s3://bucket/runs/x/")
    assert address_of(Path("runs/x")) is None
    assert address_of(f"file://{tmp_path}/x") == f"file://{tmp_path}/x"
    assert local_folder("gs://bucket/runs/x") == tmp_path / "gs" / "bucket" / "runs" / "x"


class WithoutKeys(FaultyObjects):
    """A store that has been given no keys."""

    def cat_file(self, path: str) -> bytes:
        raise type("NoCredentialsError", (Exception,), {})("Unable to locate credentials")  # as botocore does


def test_a_store_without_keys_is_asked_once() -> None:
    waits: list[float] = []
    store = Store(WithoutKeys(random.Random(0), rate=0.0), "bucket/run", Retries(sleep=waits.append))
    with pytest.raises(BucketError, match="Unable to locate credentials; give the store's keys"):
        store.read("parts/one")
    assert not waits
