"""Files of reanalyses: columns of one chunk, recomputed with a newer target network.

They lie beside the payload files in data/, and have the same form: a safetensors file with all metadata in its header,
written under a temporary name and renamed, without fsync, since the columns can be computed once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from remuda.buffer.chunk import (
    REANALYSIS_SUFFIX,
    ChunkError,
    Column,
    Columns,
    encode_described,
    is_finite,
    parse_name,
    read_described,
    read_described_meta,
)
from remuda.buffer.frames import check_columns
from remuda.storage.atomic import write_buffers
from remuda.storage.tensor_file import in_file_order
from remuda.wire.messages import Reanalysis, ReanalysisId

HEADER_AT_MOST_BYTES = 64 << 10
"""Most bytes of a reanalysis besides the columns, which are columns of the chunk: bounds the size of an honest file."""


def reanalysis_name(id: ReanalysisId) -> str:
    """Return the name of the file: worker, incarnation and sequence."""
    return f"{id.worker}_{id.incarnation:06d}_{id.sequence:09d}{REANALYSIS_SUFFIX}"


def write_reanalysis(data_dir: Path, meta: Reanalysis, columns: Mapping[str, Column]) -> Reanalysis:
    """Write the columns, each [rows, …], to the reanalysis' file in `data_dir`; return the metadata to announce.

    The returned metadata is `meta` with the size of the whole file as `payload_bytes`, and the checksum.

    Raises ValueError for columns that do not fit `meta` or are not finite; OSError if the disk refuses.
    """
    meta, buffers = encode_reanalysis(meta, columns)
    write_buffers(data_dir / meta.file, buffers, durable=False)
    return meta


def encode_reanalysis(meta: Reanalysis, columns: Mapping[str, Column]) -> tuple[Reanalysis, list[bytes | memoryview]]:
    """Return the metadata to announce, and the content of the file, as for `write_reanalysis`. Raises the same
    ValueErrors."""
    stored = in_file_order(columns)
    if (rows := check_columns(stored)) != meta.rows:
        raise ValueError(f"reanalysis {meta.id.sequence}: {meta.rows} rows announced, {rows} in its columns")
    if infinite := [name for name, column in stored.items() if not is_finite(column)]:
        raise ValueError(f"reanalysis {meta.id.sequence}: not all numbers are finite in {', '.join(infinite)}")
    return encode_described(meta, stored)


def read_reanalysis(path: Path, meta: Reanalysis) -> Columns:
    """Return the columns of the file in `meta`, read-only.

    Raises ChunkError if the file is missing, differs from `meta`, or is damaged.
    """
    if path.name != meta.file or reanalysis_name(meta.id) != meta.file:
        raise ChunkError("wrong name", path, f"announced as {meta.file!r} of {meta.id}")
    columns = read_described(path, meta)
    if any(not column.ndim or len(column) != meta.rows or not is_finite(column) for column in columns.values()):
        raise ChunkError("malformed", path, f"not {meta.rows} rows of finite numbers in each column")
    return columns


def parse_reanalysis_name(name: str) -> ReanalysisId:
    """Return the reanalysis of a file with this name. Raises ChunkError for any other name."""
    if not name.endswith(REANALYSIS_SUFFIX):
        raise ChunkError("wrong name", Path(name), f"not <worker uuid>_<incarnation>_<sequence>{REANALYSIS_SUFFIX}")
    id = parse_name(f"{name.removesuffix(REANALYSIS_SUFFIX)}.safetensors")
    return ReanalysisId(id.worker, id.incarnation, id.sequence)


def read_reanalysis_meta(path: Path, *, file: str) -> Reanalysis:
    """Return the metadata in the header of a file whose name in data/ is `file`, without reading its columns.

    Raises ChunkError if the header is damaged, the name does not fit, or the file's length differs from the header.
    """
    meta = read_described_meta(path, Reanalysis)
    if meta.file != file or reanalysis_name(meta.id) != file:
        raise ChunkError("lying header", path, f"its header says {meta.file!r} of {meta.id}")
    return meta
