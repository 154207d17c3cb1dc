"""The ring gives back the rows that were written, or says that it has them not."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.buffer.chunk import Columns
from remuda.buffer.ring import Column, ColumnRing, Gather, RowsNotHeldError, gather, numpy_gather
from remuda.buffer.sum_tree import COMPILED

GATHERS: list[Gather] = [numpy_gather, *([gather] if COMPILED else [])]
DTYPES = ("?", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "u1")

both = pytest.mark.parametrize("gather", GATHERS, ids=["numpy", "compiled"][: len(GATHERS)])


def columns_of(first_row: int, rows: int) -> Columns:
    ids = np.arange(first_row, first_row + rows)
    return {"id": ids, "obs": np.stack([ids, -ids], axis=1).astype(np.float32), "odd": ids % 2 == 1}


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


def newest_rows(first_row: int, slots: int) -> npt.NDArray[np.int64]:
    """Which row each slot holds where these are `first_row` and those after it."""
    rows = np.arange(first_row, first_row + slots)
    row_of_slot = np.empty(slots, np.int64)
    row_of_slot[rows % slots] = rows
    return row_of_slot


@both
@settings(deadline=None)
@given(
    data=st.data(),
    height=st.integers(1, 200),
    next_row=st.integers(0, 600),
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=6),
)
def test_it_is_a_fancy_index_per_column(
    gather: Gather, data: st.DataObject, height: int, next_row: int, shapes: list[list[int]]
) -> None:
    rng = np.random.default_rng(height)
    dtypes = data.draw(st.lists(st.sampled_from(DTYPES), min_size=len(shapes), max_size=len(shapes)))
    columns: tuple[Column, ...] = tuple(
        rng.integers(0, 2, (height, *shape)).astype(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)
    )
    row_of_slot = newest_rows(next_row, height)
    rows = rng.integers(next_row, next_row + height, data.draw(st.integers(0, 80)))
    out = tuple(np.empty((len(rows), *column.shape[1:]), column.dtype) for column in columns)
    assert gather(row_of_slot, columns, out, rows) is True
    for column, gathered in zip(columns, out, strict=True):
        np.testing.assert_array_equal(gathered, column[rows % height])


@both
def test_a_row_that_is_not_in_its_slot_is_noticed(gather: Gather) -> None:
    for place, row in itertools.product([0, 1, 29, 59], [-1, -7, 0, 99, 110, 2**40, -(2**63), 2**63 - 1]):
        row_of_slot, columns = newest_rows(100, 10), (np.arange(10.0),)
        rows = np.resize(row_of_slot, 60)
        assert gather(row_of_slot, columns, (np.empty(60),), rows)
        rows[place] = row
        assert gather(row_of_slot, columns, (np.empty(60),), rows) is False, (place, row)
        row_of_slot[row % 10] = -1
        assert gather(row_of_slot, columns, (np.empty(60),), rows) is False, "a slot without a row holds row -1"


@both
def test_arrays_that_do_not_fit_are_refused(gather: Gather) -> None:
    column, row_of_slot = np.arange(10.0), np.arange(10)
    with pytest.raises(ValueError, match=r"output array does not match|32 bytes for 3 rows of 8"):
        gather(row_of_slot, (column,), (np.empty(4),), np.arange(3))
    with pytest.raises(ValueError, match=r"zip\(\)|1 columns into 2 arrays"):
        gather(row_of_slot, (column,), (np.empty(3), np.empty(3)), np.arange(3))
    for height in (9, 11):
        with pytest.raises(ValueError, match="a column of 10 for"):
            gather(np.arange(height), (column,), (np.empty(3),), np.arange(3))


@pytest.mark.skipif(not COMPILED, reason="numpy converts such arrays itself")
def test_the_compiled_gather_takes_plain_memory_only() -> None:
    column, out, row_of_slot = np.arange(10.0), np.empty(2), np.arange(10)
    with pytest.raises(ValueError, match="contiguous"):
        gather(np.arange(5), (column[::2],), (out,), np.arange(2))
    with pytest.raises(ValueError, match="contiguous"):
        gather(row_of_slot, (column,), (out,), np.arange(4)[::2])
    with pytest.raises(TypeError, match="int64"):
        gather(row_of_slot, (column,), (out,), np.arange(2, dtype=np.int32))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="int64"):
        gather(np.arange(10, dtype=np.uint64), (column,), (out,), np.arange(2))  # pyright: ignore[reportArgumentType]
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        gather(row_of_slot, (column,), (out,), np.arange(2))
    with pytest.raises(ValueError, match="the most is 64"):
        gather(row_of_slot, (column,) * 65, (np.empty(2),) * 65, np.arange(2))
    with pytest.raises(ValueError, match="a column of 0 for 10 slots"):
        gather(row_of_slot, (np.array(1.0),), (np.empty(2),), np.arange(2))
    with pytest.raises(ValueError, match="without a slot"):
        gather(np.empty(0, np.int64), (), (), np.arange(2))
