"""A payload file gives back what was written, or says what is wrong with it, and never does anything else."""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - to make the file that must be refused
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.buffer.chunk import (
    ChunkError,
    Columns,
    chunk_name,
    delete_chunks,
    parse_name,
    read_chunk,
    read_meta,
    sweep_orphans,
    write_chunk,
)
from remuda.tests.buffer.chunks import WORKER, cartpole_columns
from remuda.tests.poison import Poison
from remuda.wire.messages import ChunkId, ChunkMeta, PolicyRef

CHUNK = ChunkId(worker=WORKER, incarnation=3, sequence=42)
NAME = f"{WORKER}_000003_000000042.safetensors"


def write(data_dir: Path, columns: Columns | None = None, chunk: ChunkId = CHUNK) -> ChunkMeta:
    columns = cartpole_columns(20) if columns is None else columns
    rows = max((len(column) for column in columns.values() if column.ndim), default=0)
    return write_chunk(data_dir, announced(rows, chunk), columns)


def announced(rows: int, chunk: ChunkId = CHUNK, *, collect_s: float = 0.125) -> ChunkMeta:
    return ChunkMeta(
        chunk=chunk,
        file=chunk_name(chunk),
        rows=rows,
        env_steps=23,
        payload_bytes=0,
        checksum=0,
        policy=PolicyRef(epoch=1, version=7, train_iter=70),
        collect_s=collect_s,
        episode_returns=[9.0, 12.5],
        episode_lengths=[9, 12],
    )


def fault_of(path: Path, meta: ChunkMeta) -> str:
    with pytest.raises(ChunkError) as caught:
        read_chunk(path, meta)
    assert path.name in str(caught.value)
    return caught.value.fault


# --- what was written is read ---------------------------------------------------------------------------------------
def test_columns_and_metadata_come_back(tmp_path: Path) -> None:
    meta = write(tmp_path)
    path = tmp_path / NAME
    assert meta.file == NAME
    assert (meta.rows, meta.env_steps, meta.chunk) == (20, 23, CHUNK)
    assert meta.payload_bytes == path.stat().st_size
    assert os.listdir(tmp_path) == [NAME]
    assert parse_name(NAME) == CHUNK
    assert read_meta(path) == meta
    columns, expected = read_chunk(path, meta), cartpole_columns(20)
    assert columns.keys() == expected.keys()
    for name, column in columns.items():
        assert column.dtype == expected[name].dtype
        np.testing.assert_array_equal(column, expected[name])


dtypes = st.sampled_from(["?", "u1", "i1", "u2", "<i2", ">i2", "f2", "u4", "i4", "f4", ">f4", "u8", "i8", "f8", ">f8"])
shapes = st.lists(st.integers(0, 3), max_size=3)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.integers(0, 5), kinds=st.dictionaries(st.text(max_size=5), st.tuples(dtypes, shapes), min_size=1))
def test_any_columns_come_back(tmp_path: Path, rows: int, kinds: dict[str, tuple[str, list[int]]]) -> None:
    rng = np.random.default_rng(0)
    columns: Columns = {
        name: (rng.random((rows, *shape)) * 100).astype(dtype).swapaxes(0, -1).swapaxes(0, -1)
        for name, (dtype, shape) in kinds.items()
    }
    meta = write(tmp_path, columns)
    back = read_chunk(tmp_path / NAME, meta)
    assert back.keys() == columns.keys()
    for name, column in columns.items():
        assert back[name].dtype == column.dtype.newbyteorder("=")
        np.testing.assert_array_equal(back[name], column)
    assert read_meta(tmp_path / NAME) == meta


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, "same number of rows"),
        ({"a": np.zeros(3), "b": np.ones(())}, "same number of rows"),
        ({}, "same number of rows"),
        ({"a": np.array(["x"])}, "cannot be stored"),
        ({"a": np.zeros(1, np.complex128)}, "cannot be stored"),
        ({"__metadata__": np.zeros(1)}, "cannot be stored"),
    ],
)
def test_columns_that_are_no_chunk_are_refused(tmp_path: Path, columns: Columns, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write(tmp_path, columns)
    assert os.listdir(tmp_path) == []


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    for returns, collect_s in ([float("nan"), 1.0], 1.0), ([1.0, 1.0], float("inf")):
        meta = msgspec.structs.replace(announced(2), collect_s=collect_s, episode_returns=returns)
        with pytest.raises(ValueError, match="finite"):
            write_chunk(tmp_path, meta, cartpole_columns(2))
    assert os.listdir(tmp_path) == []


# --- what is damaged is refused -------------------------------------------------------------------------------------
def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    meta = write(tmp_path, cartpole_columns(3))
    path = tmp_path / NAME
    whole = path.read_bytes()
    good = read_chunk(path, meta)
    seen = set[str]()
    for position in range(len(whole)):
        content = bytearray(whole)
        content[position] ^= 1 << (position % 8)
        path.write_bytes(content)
        try:
            columns = read_chunk(path, meta)
        except ChunkError as error:
            seen.add(error.fault)
            continue
        # A flip that changes nothing (such as the case of an exponent's e) is no damage.
        assert columns.keys() == good.keys()
        assert all((columns[name] == good[name]).all() for name in good), f"byte {position}"
    assert {"wrong checksum", "malformed", "lying header"} <= seen


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    meta = write(tmp_path, cartpole_columns(2))
    path = tmp_path / NAME
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert fault_of(path, meta) == "wrong size"
        with pytest.raises(ChunkError):
            read_meta(path)
    path.write_bytes(whole + b"\0")
    assert fault_of(path, meta) == "wrong size"
    with pytest.raises(ChunkError, match="wrong size"):
        read_meta(path)


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_pickle_is_refused_and_never_run(tmp_path: Path, protocol: int) -> None:
    poison = Poison(tmp_path / "opened")
    content = pickle.dumps(poison, protocol)
    meta = msgspec.structs.replace(write(tmp_path), payload_bytes=len(content))
    (tmp_path / NAME).write_bytes(content)
    assert fault_of(tmp_path / NAME, meta) == "pickle"
    with pytest.raises(ChunkError, match="pickle"):
        read_meta(tmp_path / NAME)
    assert not poison.worked


def test_a_header_that_lies_is_refused(tmp_path: Path) -> None:
    meta = write(tmp_path)
    path = tmp_path / NAME
    for lie in (
        msgspec.structs.replace(meta, rows=19),
        msgspec.structs.replace(meta, env_steps=1000),
        msgspec.structs.replace(meta, policy=PolicyRef(epoch=9)),
        msgspec.structs.replace(meta, checksum=meta.checksum ^ 1),
    ):
        assert fault_of(path, lie) == "lying header"
    other = ChunkId(worker=WORKER, incarnation=3, sequence=43)
    os.rename(path, tmp_path / chunk_name(other))
    with pytest.raises(ChunkError, match="lying header"):
        read_meta(tmp_path / chunk_name(other))


# --- names and paths ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        f"../{NAME}",
        f"{NAME}\n",
        NAME.replace("_000003_", "_3_"),
        NAME.replace("000003", "00000٣"),
        NAME.removesuffix(".safetensors"),
        f".{NAME}.1.abcdef01.tmp",
    ],
)
def test_foreign_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ChunkError, match="wrong name"):
        parse_name(name)
    with pytest.raises(ChunkError, match="wrong name"):
        delete_chunks(tmp_path, [name])


def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    meta = write(tmp_path)
    evil = msgspec.structs.replace(meta, file=f"../{NAME}")
    assert fault_of(data_dir / evil.file, evil) == "wrong name"


def test_links_pipes_and_folders_are_not_opened(tmp_path: Path) -> None:
    meta = write(tmp_path)
    path = tmp_path / NAME
    os.rename(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert fault_of(path, meta) == "unreadable"
    path.unlink()
    os.mkfifo(path)
    assert fault_of(path, meta) == "unreadable"
    path.unlink()
    path.mkdir()
    assert fault_of(path, meta) == "unreadable"


# --- sweeping -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ahead_s", [0.0, 2000.0])
def test_only_payloads_that_nobody_knows_are_swept(
    tmp_path: Path, ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock that stamps the files: this machine's clock may be ahead of that."""
    names = [
        write(tmp_path, chunk=ChunkId(worker=WORKER, incarnation=1, sequence=sequence)).file for sequence in range(4)
    ]
    temporary = tmp_path / f".{NAME}.123.abcdef01.tmp"
    for path in (temporary, tmp_path / "notes.txt"):
        path.write_bytes(b"")
    for entry in os.listdir(tmp_path):
        os.utime(tmp_path / entry, (1000, 1000))
    later_s = time.time() + 1000
    os.utime(tmp_path / names[3], (later_s, later_s))
    (tmp_path / NAME).mkdir()
    monkeypatch.setattr(time, "time", lambda: later_s - 1000 + ahead_s)
    sweep_orphans(tmp_path, {names[0]})
    assert sorted(os.listdir(tmp_path)) == sorted([names[0], names[3], NAME, "notes.txt"])
