"""A file that cannot be written is tried again after growing pauses, and people get two messages about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from remuda.logbook.book import RETRY_S, Outages


@dataclass
class Disk:
    """A file whose disk may refuse."""

    path: Path = Path("f")
    error: Exception | None = None
    attempts: list[float] = field(default_factory=list[float])
    now_s: float = 0.0

    def write(self) -> None:
        self.attempts.append(self.now_s)
        if self.error is not None:
            raise self.error


def test_it_is_tried_again_after_pauses_and_said_at_its_begin_and_end() -> None:
    disk = Disk(error=OSError(28, "No space left on device"))
    outages = Outages(lambda: disk.now_s)
    news: list[tuple[float, str]] = []
    for second in range(60):
        disk.now_s = float(second)
        if second == 45:
            disk.error = None
        found = outages.attempt(disk, disk.write)
        if found is not None:
            news.append((disk.now_s, found.text))
    assert disk.attempts[:7] == [0.0, 1.0, 3.0, 8.0, 18.0, 28.0, 38.0]
    assert [after - before for before, after in zip(disk.attempts, disk.attempts[1:4], strict=False)] == list(
        RETRY_S[:3]
    )
    assert disk.attempts[7:] == [float(second) for second in range(48, 60)]
    assert news == [
        (0.0, "f cannot be written and will be tried again; the run continues: [Errno 28] No space left on device"),
        (48.0, "f is written again; 48 records are missing: [Errno 28] No space left on device"),
    ]
    assert outages.end(disk) is None


def test_a_disk_on_which_short_records_find_room_and_long_ones_do_not_has_one_outage() -> None:
    disk = Disk()
    outages = Outages(lambda: disk.now_s)
    news: list[str] = []
    for second in range(900):
        disk.now_s = float(second)
        disk.error = OSError(28, "No space left on device") if second < 600 and second % 7 == 0 else None
        found = outages.attempt(disk, disk.write)
        if found is not None:
            news.append(found.text.partition(":")[0])
    assert news[:2] == [
        "f cannot be written and will be tried again; the run continues",
        "f is written again; 1 records are missing",
    ]
    assert len(news) == 3
    assert news[2].startswith("f is written again; ")
    assert outages.end(disk) is None


def test_what_no_waiting_mends_ends_it_for_good() -> None:
    disk = Disk(error=ValueError("no such column"))
    outages = Outages(lambda: disk.now_s)
    found = outages.attempt(disk, disk.write)
    assert found is not None
    assert found.text == "f is given up; the run continues: no such column"
    disk.error, disk.now_s = None, 1e9
    assert outages.attempt(disk, disk.write, at_once=True) is None
    assert disk.attempts == [0.0]
    assert outages.end(disk) is None


def test_what_must_be_done_is_tried_at_once() -> None:
    disk = Disk(error=OSError("sick"))
    outages = Outages(lambda: disk.now_s)
    assert outages.attempt(disk, disk.write) is not None
    assert outages.attempt(disk, disk.write) is None
    assert outages.attempt(disk, disk.write, at_once=True) is None
    assert len(disk.attempts) == 2
    assert outages.end(disk) == "f lacks its last 3 records: sick"


def test_files_are_out_of_order_each_for_itself() -> None:
    sick, well = Disk(error=OSError("sick")), Disk()
    outages = Outages(lambda: 0.0)
    for disk in (sick, well, sick, well):
        outages.attempt(disk, disk.write)
    assert (len(sick.attempts), len(well.attempts)) == (1, 2)
