"""Records of a long time series at evenly spaced places of its file, and the newest ones: nothing between is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import numpy as np

from remuda.logbook.series import Evaluation, Interval, Logged, decode_first, marker
from remuda.storage.record_file import LONGEST_BYTES
from remuda.storage.untrusted import open_regular

_WINDOWS_BYTES = (4 << 10, 64 << 10)
"""How far a record of the kind is looked for behind a place: a little first, and then further."""
_END_BYTES = (64 << 10, 2 * LONGEST_BYTES)
"""How far the newest one is looked for before the end."""
_RecordT = TypeVar("_RecordT", bound=Interval | Evaluation | Logged)


def sampled(path: Path, kind: type[_RecordT], places: int) -> list[_RecordT]:
    """Records of one kind in their order, at most so many: one for each of evenly spaced places, and the newest one.
    Raises OSError."""
    found: dict[int, _RecordT] = {}
    with open_regular(path, follow_link=False) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        for place in np.linspace(0, size, places - 1, endpoint=False, dtype=np.int64).tolist():
            for window in _WINDOWS_BYTES:
                if _first(os.pread(descriptor, window, place), place, kind, found):
                    break
        _newest(descriptor, size, kind, found)
    return [found[place] for place in sorted(found)]


def newest_interval(path: Path) -> Interval | None:
    """The newest interval near the end of the file; None if there is none, or no file that can be read."""
    found: dict[int, Interval] = {}
    try:
        with open_regular(path, follow_link=False) as file:
            _newest(file.fileno(), os.fstat(file.fileno()).st_size, Interval, found)
    except OSError:
        return None
    return next(iter(found.values()), None)


def _first(data: bytes, place: int, kind: type[_RecordT], found: dict[int, _RecordT]) -> bool:
    """Note the first record of the kind in `data`, which lies at this place of the file; whether it is whole."""
    mark, at = marker(kind), -1
    while (at := data.find(mark, at + 1)) >= 0:
        if _note(data, at, place, kind, found):
            return True
    return False


def _newest(descriptor: int, size: int, kind: type[_RecordT], found: dict[int, _RecordT]) -> None:
    mark = marker(kind)
    for window in _END_BYTES:
        place = max(size - window, 0)
        data = os.pread(descriptor, window, place)
        at = len(data)
        while (at := data.rfind(mark, 0, at)) >= 0:
            if _note(data, at, place, kind, found):
                return


def _note(data: bytes, at: int, place: int, kind: type[_RecordT], found: dict[int, _RecordT]) -> bool:
    """Note the record whose kind stands at `at`, if it is one: a text may hold the same bytes."""
    for header, is_map in ((1, data[at - 1] >> 4 == 0x8), (3, at >= 3 and data[at - 3] == 0xDE)):
        if at >= header and is_map:
            begin = at - header
            record = decode_first(data[begin : begin + LONGEST_BYTES])
            if isinstance(record, kind):
                found[place + begin] = record
                return True
    return False
