"""Files of reanalyses: what was written is read, and nothing else is taken for it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from remuda.buffer.chunk import (
    HEADER_AT_MOST_BYTES,
    ChunkError,
    Columns,
    delete_chunks,
    parse_name,
    read_chunk,
    reanalysis_name,
    sweep_orphans,
    write_chunk,
)
from remuda.tests.buffer.chunks import WORKER, meta_of
from remuda.wire.messages import PolicyRef, Reanalysis, ReanalysisId


def meta(rows: int = 3, sequence: int = 0) -> Reanalysis:
    id = ReanalysisId(WORKER, 2, sequence)
    return Reanalysis(id, reanalysis_name(id), meta_of(4, rows).chunk, 60, rows, PolicyRef(1, 5, 500), 0, 0, 0.25)


def columns(rows: int = 3) -> Columns:
    rng = np.random.default_rng(rows)
    policy, value = rng.random((rows, 4, 2), np.float32), rng.random((rows, 4), np.float32)
    return {"search_policy": policy, "root_value": value}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = write_chunk(tmp_path, meta(), columns())
    path = tmp_path / written.file
    assert path.name == f"{WORKER}_000002_000000000.reanalysis.safetensors"
    assert written.payload_bytes == path.stat().st_size
    assert written.payload_bytes <= sum(c.nbytes for c in columns().values()) + HEADER_AT_MOST_BYTES
    found = read_chunk(path, written)
    assert found.keys() == columns().keys()
    for name, column in columns().items():
        np.testing.assert_array_equal(found[name], column)


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("wrong size", {"payload_bytes": 17}),
        ("lying header", {"target": PolicyRef(1, 6, 600)}),
        ("lying header", {"rows": 4}),
        ("lying header", {"checksum": 1}),
        ("wrong name", {"id": ReanalysisId(WORKER, 2, 9)}),
    ],
)
def test_what_is_not_as_announced_is_refused(tmp_path: Path, fault: str, changes: dict[str, object]) -> None:
    written = write_chunk(tmp_path, meta(), columns())
    with pytest.raises(ChunkError) as caught:
        read_chunk(tmp_path / written.file, replace(written, **changes))
    assert caught.value.fault == fault


def test_a_missing_and_a_damaged_file_are_told_apart(tmp_path: Path) -> None:
    written = write_chunk(tmp_path, meta(), columns())
    path = tmp_path / written.file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ChunkError) as caught:
        read_chunk(path, written)
    assert caught.value.fault == "wrong checksum"
    path.unlink()
    with pytest.raises(ChunkError) as caught:
        read_chunk(path, written)
    assert caught.value.fault == "missing"


def test_what_does_not_fit_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="4 rows announced, 3 in its columns"):
        write_chunk(tmp_path, meta(4), columns(3))
    infinite = columns()
    infinite["root_value"][1, 2] = np.nan
    with pytest.raises(ValueError, match="not all numbers are finite in root_value"):
        write_chunk(tmp_path, meta(), infinite)
    assert list(tmp_path.iterdir()) == []


def test_it_is_deleted_and_swept_as_payloads_are_and_never_taken_for_one(tmp_path: Path) -> None:
    first, second = (write_chunk(tmp_path, meta(sequence=n), columns()) for n in range(2))
    with pytest.raises(ChunkError):
        parse_name(first.file)
    delete_chunks(tmp_path, [first.file, first.file])
    assert [path.name for path in tmp_path.iterdir()] == [second.file]
    os.utime(tmp_path / second.file, (1000, 1000))  # of a former run; a file as young as the sweep stays
    sweep_orphans(tmp_path, {second.file})
    assert [path.name for path in tmp_path.iterdir()] == [second.file]
    sweep_orphans(tmp_path, set())
    assert list(tmp_path.iterdir()) == []
    for name in ("x.reanalysis.safetensors", f"../{first.file}"):
        with pytest.raises(ChunkError):
            delete_chunks(tmp_path, [name])
