"""Stacks whose frames are stored once come back as they were, from the disk and from the ring, whatever is evicted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.buffer.chunk import ChunkError, Columns, read_chunk, write_chunk
from remuda.buffer.frames import FRAMES, index_name
from remuda.buffer.ring import ColumnRing, RowsNotHeldError
from remuda.tests.buffer.chunks import meta_of
from remuda.tests.buffer.stacks import image_columns, unstacked
from remuda.wire.messages import ChunkMeta


def write(data_dir: Path, columns: Columns) -> ChunkMeta:
    return write_chunk(data_dir, meta_of(0, len(columns.get("id", range(5)))), columns)


# --- names and checks -----------------------------------------------------------------------------------------------
def damaged(**changes: np.ndarray | None) -> Columns:
    """Columns of 5 rows and 9 frames, some of them replaced or (None) left out."""
    columns = {**image_columns(5, frames=9), **changes}
    return {name: column for name, column in columns.items() if column is not None}


OBS = index_name("obs")
NONSENSE: dict[str, tuple[Columns, str]] = {
    "beyond the frames": (damaged(**{OBS: np.full((5, 4), 9, np.int32)}), "leads outside the 9 frames"),
    "before the frames": (damaged(**{OBS: np.full((5, 4), -1, np.int32)}), "leads outside the 9 frames"),
    "other integers": (damaged(**{OBS: np.zeros((5, 4), np.int64)}), "must be int32"),
    "frames left out": (damaged(frames=None), "go together"),
    "frames of nothing": (damaged(frames=np.zeros((), np.uint8)), "leads? (to|outside)"),
    "stored twice": (damaged(obs=np.zeros((5, 4))), "not taken"),
    "nameless": (damaged(**{index_name(""): np.zeros((5, 4), np.int32)}), "not taken"),
    "another length": (damaged(**{OBS: np.zeros((4, 4), np.int32)}), "same number of rows"),
}


@pytest.mark.parametrize(("columns", "message"), NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_neither_written_nor_held_nor_read(
    tmp_path: Path, columns: Columns, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=message):
        write(tmp_path, columns)
    assert list(tmp_path.iterdir()) == []
    ring = ColumnRing(10)
    with pytest.raises(ValueError, match=message):
        ring.write(0, columns)
    assert (ring.next_row, ring.nbytes) == (0, 0)
    with monkeypatch.context() as patch:
        patch.setattr("remuda.buffer.chunk.check_columns", lambda columns: 5)
        meta = write(tmp_path, columns)
    with pytest.raises(ChunkError, match=message) as caught:
        read_chunk(tmp_path / meta.file, meta)
    assert caught.value.fault == "malformed", "though its checksum is right"


# --- in the ring ----------------------------------------------------------------------------------------------------
@settings(deadline=None)
@given(
    size=st.integers(1, 17),
    chunks=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 15), st.sampled_from([0, 0, 0, 1, 4, 30])), max_size=15
    ),
)
def test_stacks_agree_with_a_dict_of_rows(size: int, chunks: list[tuple[int, int, int]]) -> None:
    ring = ColumnRing(size)
    naive = dict[int, tuple[np.ndarray, np.ndarray]]()
    next_row = 0
    for rows, frames, gap in chunks:
        rows, first_row = min(rows, size), next_row + gap
        columns = image_columns(rows, frames=frames, first_row=first_row)
        ring.write(first_row, columns)
        plain = unstacked(columns)
        naive |= {first_row + i: (plain["obs"][i], plain["next_obs"][i]) for i in range(rows)}
        next_row = first_row + rows
    held = np.array([row for row in naive if row >= next_row - size], np.int64)
    if len(held):
        gathered = ring.gather(held)
        assert sorted(gathered) == ["id", "next_obs", "obs"]
        np.testing.assert_array_equal(gathered["id"], held)
        np.testing.assert_array_equal(gathered["obs"], np.stack([naive[row][0] for row in held.tolist()]))
        np.testing.assert_array_equal(gathered["next_obs"], np.stack([naive[row][1] for row in held.tolist()]))
    for row in set(range(-2, next_row + 2)) - set(held.tolist()):
        with pytest.raises(RowsNotHeldError):
            ring.gather(np.array([row]))


@pytest.mark.parametrize("shape", [(), (4,), (5, 4)], ids=["single images", "stacks", "segments of stacks"])
def test_indices_of_any_shape_are_replaced_by_frames(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (30, 2, 3), dtype=np.uint8)
    index = rng.integers(0, 30, (6, *shape), dtype=np.int32)
    ring = ColumnRing(6)
    ring.write(0, {FRAMES: frames, OBS: index})
    np.testing.assert_array_equal(ring.gather(np.arange(6))["obs"], frames[index])


def test_stacks_do_not_overlap_so_that_one_may_be_changed_in_place() -> None:
    ring = ColumnRing(10)
    columns = image_columns(8)
    columns[index_name("next_obs")] = columns[OBS]
    ring.write(0, columns)
    batch = ring.gather(np.arange(8))
    batch["obs"][:] = 0
    np.testing.assert_array_equal(batch["next_obs"], unstacked(columns)["next_obs"])


def test_memory_is_that_of_the_frames_in_use_and_does_not_grow_with_time() -> None:
    ring = ColumnRing(120)
    sizes = list[int]()
    for chunk in range(60):
        ring.write(10 * chunk, image_columns(10, frames=14, side=32, first_row=10 * chunk))
        sizes.append(ring.nbytes)
    in_use = 12 * 14 * 32 * 32
    columns = 120 * (2 * 4 * 4 + 8)
    assert in_use + columns <= sizes[-1] <= 1.15 * in_use + columns
    assert sizes[12:] == sizes[12:13] * 48


def test_chunks_of_other_images_are_refused_and_change_nothing() -> None:
    ring = ColumnRing(10)
    columns = image_columns(4)
    ring.write(0, columns)
    before = ring.nbytes
    wide = {**columns, FRAMES: np.zeros((12, 3, 4), np.uint8)}
    floats = {**columns, FRAMES: np.zeros((12, 3, 3), np.float32)}
    plain = unstacked(columns)
    messages = (r"'frames' is uint8[3, 4]", r"'frames' is float32[3, 3]", "do all collectors run the same config")
    for other, message in zip((wide, floats, plain), messages, strict=True):
        with pytest.raises(ValueError, match=re.escape(message)):
            ring.write(4, other)
    assert (ring.next_row, ring.nbytes) == (4, before)
    np.testing.assert_array_equal(ring.gather(np.arange(4))["obs"], plain["obs"])
