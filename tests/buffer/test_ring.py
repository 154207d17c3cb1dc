"""The ring gives back the rows that were written, or says that it has them not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.buffer.chunk import Columns
from remuda.buffer.ring import ColumnRing, RowsNotHeldError


def columns_of(first_row: int, rows: int) -> Columns:
    ids = np.arange(first_row, first_row + rows)
    return {"id": ids, "obs": np.stack([ids, -ids], axis=1).astype(np.float32), "odd": ids % 2 == 1}


@settings(deadline=None)
@given(
    size=st.integers(1, 17),
    chunks=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 0, 0, 1, 4, 30])), max_size=15),
)
def test_agrees_with_a_dict(size: int, chunks: list[tuple[int, int]]) -> None:
    ring = ColumnRing(size)
    naive = dict[int, int]()  # by slot
    next_row = 0
    for rows, gap in chunks:
        rows, first_row = min(rows, size), next_row + gap
        ring.write(first_row, columns_of(first_row, rows))
        naive |= {row % size: row for row in range(first_row, first_row + rows)}
        next_row = first_row + rows
    assert ring.next_row == next_row
    held = np.array(sorted(row for row in naive.values() if row >= next_row - size), np.int64)
    if len(held):
        gathered = ring.gather(held[::-1])
        np.testing.assert_array_equal(gathered["id"], held[::-1])
        np.testing.assert_array_equal(gathered["obs"], columns_of(0, next_row)["obs"][held[::-1]])
        np.testing.assert_array_equal(gathered["odd"], held[::-1] % 2 == 1)
    for row in set(range(-2, next_row + 2)) - set(held.tolist()):
        with pytest.raises(RowsNotHeldError):
            ring.gather(np.array([row]))


def test_what_was_gathered_stays_when_the_ring_moves_on() -> None:
    ring = ColumnRing(4)
    ring.write(0, columns_of(0, 4))
    gathered = ring.gather(np.arange(4))
    ring.write(4, columns_of(4, 4))
    assert gathered["id"].tolist() == [0, 1, 2, 3]


def test_the_newest_rows_are_kept() -> None:
    ring = ColumnRing(12)
    for first_row in range(0, 24, 4):
        ring.write(first_row, columns_of(first_row, 4))
    assert ring.gather(np.arange(12, 24))["id"].tolist() == list(range(12, 24))
    with pytest.raises(RowsNotHeldError, match=r"1 of 2 rows are not in the ring, the first of them \[11\]"):
        ring.gather(np.array([12, 11]))


def test_rows_left_out_are_not_held() -> None:
    ring = ColumnRing(100)
    ring.write(0, columns_of(0, 5))
    ring.write(10, columns_of(10, 5))
    assert ring.gather(np.array([4, 10]))["id"].tolist() == [4, 10]
    with pytest.raises(RowsNotHeldError, match=r"\[5, 9\]"):
        ring.gather(np.array([4, 5, 9, 10]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": np.zeros(2, np.int64), "obs": np.zeros((2, 2), np.float32)}, r"columns are \['id', 'obs'\]"),
        ({**columns_of(0, 2), "new": np.zeros(2)}, "'new'"),
        ({**columns_of(0, 2), "obs": np.zeros((2, 3), np.float32)}, r"'obs' is float32\[3\].*was float32\[2\]"),
        ({**columns_of(0, 2), "obs": np.zeros((2, 2))}, r"'obs' is float64\[2\]"),
        ({**columns_of(0, 2), "id": np.zeros(3, np.int64)}, "same number of rows"),
        ({}, "same number of rows"),
        (columns_of(0, 11), "11 rows do not fit a ring of 10"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(columns: Columns, message: str) -> None:
    ring = ColumnRing(10)
    ring.write(0, columns_of(0, 2))
    with pytest.raises(ValueError, match=message):
        ring.write(2, columns)
    assert ring.next_row == 2
    assert ring.gather(np.arange(2))["id"].tolist() == [0, 1]
    with pytest.raises(RowsNotHeldError):
        ring.gather(np.array([2]))


def test_rows_do_not_go_backwards() -> None:
    ring = ColumnRing(10)
    ring.write(3, columns_of(3, 2))
    with pytest.raises(ValueError, match="rows from 4 on were written before; the next row is 5"):
        ring.write(4, columns_of(4, 1))


# --- columns that are computed again


@settings(deadline=None)
@given(
    size=st.integers(1, 17),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 9), st.sampled_from([0, 0, 1, 4, 30])),
            st.tuples(st.just("rewrite"), st.integers(0, 40), st.integers(1, 5)),
        ),
        max_size=25,
    ),
)
def test_rewriting_agrees_with_a_dict(size: int, steps: list[tuple[str, int, int]]) -> None:
    """A row has the version of the newest target network that computed it again since it was written."""
    ring, held = ColumnRing(size), dict[int, tuple[int, int]]()  # by slot: the row and its version
    for kind, number, other in steps:
        if kind == "write":
            rows, first_row = min(number, size), ring.next_row + other
            ring.write(first_row, {**columns_of(first_row, rows), "again": np.zeros((rows, 3), np.int64)})
            held |= {row % size: (row, 0) for row in range(first_row, first_row + rows)}
        else:
            changed = ring.rewrite(number, {"again": np.full((4, 3), other)}, other)
            older = {slot: (row, other) for slot, (row, v) in held.items() if number <= row < number + 4 and v < other}
            older = {slot: value for slot, value in older.items() if value[0] >= ring.next_row - size}
            assert changed == len(older)
            held |= older
    there = sorted(value for value in held.values() if value[0] >= ring.next_row - size)
    if there:
        gathered = ring.gather(np.array([row for row, _ in there]))
        np.testing.assert_array_equal(gathered["again"], np.array([[v] * 3 for _, v in there]))
        np.testing.assert_array_equal(gathered["id"], [row for row, _ in there])


@pytest.mark.parametrize(
    "columns",
    [
        {"unknown": np.zeros(2, np.float32)},
        {"obs": np.zeros((2, 2), np.float64)},
        {"obs": np.zeros((2, 3), np.float32)},
        {"odd": np.zeros(2, np.bool_), "obs": np.zeros((2, 3), np.float32)},
    ],
)
def test_what_does_not_fit_rewrites_nothing(columns: Columns) -> None:
    ring = ColumnRing(4)
    ring.write(0, columns_of(0, 4))
    with pytest.raises(ValueError, match="cannot be rewritten"):
        ring.rewrite(0, columns, 7)
    gathered = ring.gather(np.arange(4))
    np.testing.assert_array_equal(gathered["obs"], columns_of(0, 4)["obs"])
    np.testing.assert_array_equal(gathered["odd"], columns_of(0, 4)["odd"])
