"""Rows are gathered alike by both, and never from beyond a column."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.buffer.gathering import Column, Gather, gather, numpy_gather
from remuda.buffer.sum_tree import COMPILED

GATHERS: list[Gather] = [numpy_gather, *([gather] if COMPILED else [])]
DTYPES = ("?", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "u1")

both = pytest.mark.parametrize("gather", GATHERS, ids=["numpy", "compiled"][: len(GATHERS)])


def test_what_is_compiled_is_compiled_together() -> None:
    assert (gather is not numpy_gather) == COMPILED


@both
@settings(deadline=None, max_examples=100)
@given(
    data=st.data(),
    height=st.integers(1, 200),
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=6),
)
def test_it_is_a_fancy_index_per_column(
    gather: Gather, data: st.DataObject, height: int, shapes: list[list[int]]
) -> None:
    rng = np.random.default_rng(height)
    dtypes = data.draw(st.lists(st.sampled_from(DTYPES), min_size=len(shapes), max_size=len(shapes)))
    columns: tuple[Column, ...] = tuple(
        rng.integers(0, 2, (height, *shape)).astype(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)
    )
    slots = rng.integers(0, height, data.draw(st.integers(0, 80)))
    out = tuple(np.empty((len(slots), *column.shape[1:]), column.dtype) for column in columns)
    gather(columns, out, slots)
    for column, rows in zip(columns, out, strict=True):
        np.testing.assert_array_equal(rows, column[slots])


@both
@pytest.mark.parametrize("slot", [-1, 10, 2**40, -(2**63), 2**63 - 1])
def test_slots_outside_of_a_column_are_refused_and_nothing_is_written(gather: Gather, slot: int) -> None:
    columns, out = (np.arange(10.0), np.arange(10)), (np.zeros(3), np.zeros(3, np.int64))
    with pytest.raises(IndexError, match="of 10"):
        gather(columns, out, np.array([1, slot, 2]))
    assert not out[0].any()
    assert not out[1].any()


@both
def test_arrays_that_do_not_fit_are_refused(gather: Gather) -> None:
    column = np.arange(10.0)
    with pytest.raises(ValueError, match=r"output array does not match|32 bytes for 3 rows of 8"):
        gather((column,), (np.empty(4),), np.arange(3))
    with pytest.raises(ValueError, match=r"zip\(\)|1 columns into 2 arrays"):
        gather((column,), (np.empty(3), np.empty(3)), np.arange(3))


@pytest.mark.skipif(not COMPILED, reason="numpy converts such arrays itself")
def test_the_compiled_gather_takes_plain_memory_only() -> None:
    column, out = np.arange(10.0), np.empty(2)
    with pytest.raises(ValueError, match="contiguous"):
        gather((column[::2],), (out,), np.arange(2))
    with pytest.raises(TypeError, match="int64"):
        gather((column,), (out,), np.arange(2, dtype=np.int32))  # pyright: ignore[reportArgumentType]
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        gather((column,), (out,), np.arange(2))
    with pytest.raises(ValueError, match="the most is 64"):
        gather((column,) * 65, (np.empty(2),) * 65, np.arange(2))
    with pytest.raises(ValueError, match="16 bytes for 2 rows of 0"):
        gather((np.array(1.0),), (np.empty(2),), np.arange(2))


def test_many_rows_of_a_tall_column() -> None:
    """More rows than are asked for ahead, from memory that no cache holds."""
    rng = np.random.default_rng(0)
    columns = (rng.random((300_000, 4)), rng.integers(0, 9, 300_000))
    slots = rng.integers(0, 300_000, 5_000)
    for way in GATHERS:
        out = (np.empty((5_000, 4)), np.empty(5_000, np.int64))
        way(columns, out, slots)
        for column, rows in zip(columns, out, strict=True):
            np.testing.assert_array_equal(rows, column[slots])
