"""A file of records is read up to what is torn or damaged, in bounded memory, and never raises for what is in it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from remuda.storage.record_file import LONGEST_BYTES, ends_of_records, packed, read_records

RECORDS: list[object] = [
    {"kind": "a", "x": 1.5, "list": [1, None, True]},
    {"kind": "b", "text": "é" * 40},
    {"kind": "c"},
]


def values(path: Path) -> list[object]:
    return [record.value for record in read_records(path)]


def test_records_come_back_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(content := b"".join(packed(value) for value in RECORDS))
    for record, value in zip(read_records(path), RECORDS, strict=True):
        assert record.value == value
        assert content[record.begin : record.end] == packed(value)


def test_torn_at_any_byte_what_is_whole_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "records"
    pieces = [packed(value) for value in RECORDS]
    data, ends = b"".join(pieces), [len(b"".join(pieces[: n + 1])) for n in range(len(pieces))]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        assert values(path) == RECORDS[: sum(end <= size for end in ends)], size


@pytest.mark.parametrize(
    "damage",
    [b"\xdb\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdd\x00\x10\x00\x00" * 500],
    ids=["text", "list", "map", "lists in lists"],
)
def test_a_damaged_length_takes_no_memory(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "records"
    path.write_bytes(packed(RECORDS[0]) + damage + bytes(1000))
    tracemalloc.start()
    try:
        assert values(path) == RECORDS[:1]
        assert tracemalloc.get_traced_memory()[1] < 8 * LONGEST_BYTES
    finally:
        tracemalloc.stop()


def test_where_whole_records_end_is_found_without_making_them() -> None:
    pieces = [packed(value) for value in RECORDS]
    data, ends = b"".join(pieces), [len(b"".join(pieces[: n + 1])) for n in range(len(pieces))]
    for size in range(len(data) + 1):
        assert ends_of_records(data[:size]) == [end for end in ends if end <= size]
    assert ends_of_records(data, most=2) == ends[:2]
    assert ends_of_records(data + b"\xc1" * 50) == ends
