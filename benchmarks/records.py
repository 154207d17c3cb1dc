"""Stored results: of each comparison the newest measurement, with date and machine, in one file of JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from remuda.benchmarks.machine import Machine
from remuda.storage.atomic import write_bytes

RESULTS = Path(__file__).parent / "results"
Kind = Literal["ours", "peers", "gpu"]


class Record(msgspec.Struct, frozen=True):
    """One line of a file of results: a Figure, when it was measured, and where."""

    name: str
    unit: str
    ours: float
    reference: float | None
    reference_name: str
    ratio: float | None
    goal: str
    met: bool
    n: int
    date: str = ""
    machine: Machine | None = None
    failure: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What a newer record replaces."""
        return self.name, self.reference_name


def parse(lines: Iterable[str], *, date: str, machine: Machine) -> list[Record]:
    """Return the figures among the lines that a benchmark printed, stamped. Other lines are passed over."""
    records = [msgspec.json.decode(line, type=Record) for line in lines if line.startswith("{")]
    return [msgspec.structs.replace(record, date=date, machine=machine) for record in records]


def store(records: Sequence[Record], *, kind: Kind, date: str, folder: Path = RESULTS) -> Path:
    """Write `<date>-<kind>.jsonl`: these records and, of what was not measured now, the newest older ones.

    Records of a name that was measured now are replaced all together, so that a reference that is no longer compared
    with does not linger.
    """
    measured = {record.name for record in records}
    kept = [record for record in newest(kind, folder) if record.name not in measured]
    path = folder / f"{date}-{kind}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [msgspec.json.encode(record) for record in sorted([*kept, *records], key=lambda record: record.key)]
    write_bytes(path, b"".join(line + b"\n" for line in lines), durable=False)
    return path


def newest(kind: Kind, folder: Path = RESULTS) -> list[Record]:
    """Return the records of the newest file of this kind, which is the newest full picture; or none."""
    files = sorted(folder.glob(f"????-??-??-{kind}.jsonl"))
    if not files:
        return []
    return [msgspec.json.decode(line, type=Record) for line in files[-1].read_bytes().splitlines()]


def everything(folder: Path = RESULTS) -> list[Record]:
    """Return of each comparison the newest record of either kind, sorted by name."""
    found = {record.key: record for record in sorted([*newest("ours", folder), *newest("peers", folder)], key=_date)}
    return [found[key] for key in sorted(found)]


def _date(record: Record) -> str:
    return record.date
