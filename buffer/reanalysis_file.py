"""Files of reanalyses: the columns of one chunk that were computed again with a newer target network.

They lie beside the payload files in data/, and are made in the same way: a safetensors file whose header carries all
metadata, written under a temporary name and renamed, without fsync, since it can be computed once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

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
"""The most that a reanalysis has besides its columns. These are some of the chunk's own, so no honest file is larger
than the chunk's and this."""


class _Metadata(msgspec.Struct, forbid_unknown_fields=True):
    reanalysis: str


class _Header(msgspec.Struct):
    """The part of a safetensors header that describes the reanalysis."""

    metadata: _Metadata = msgspec.field(name="__metadata__")


_HEADER = msgspec.json.Decoder(_Header)  # once, before threads: see remuda.training.journal
_REANALYSIS = msgspec.json.Decoder(Reanalysis)


def reanalysis_name(id: ReanalysisId) -> str:
    """Return the name of the file: worker, incarnation and sequence."""
    return f"{id.worker}_{id.incarnation:06d}_{id.sequence:09d}{REANALYSIS_SUFFIX}"


def write_reanalysis(data_dir: Path, meta: Reanalysis, columns: Mapping[str, Column]) -> Reanalysis:
    """Write the columns, each [rows, …], to the reanalysis' file in `data_dir`; return what to announce.

    That is `meta` with the size of the whole file as `payload_bytes`, and the checksum.

    Raises ValueError for columns that do not fit `meta` or are not finite; OSError if the disk refuses.
    """
    meta, buffers = encode_reanalysis(meta, columns)
    write_buffers(data_dir / meta.file, buffers, durable=False)
    return meta


def encode_reanalysis(meta: Reanalysis, columns: Mapping[str, Column]) -> tuple[Reanalysis, list[bytes | memoryview]]:
    """What `write_reanalysis` announces, and the content of its file. Raises ValueError as it does."""
    stored = in_file_order(columns)
    if (rows := check_columns(stored)) != meta.rows:
        raise ValueError(f"reanalysis {meta.id.sequence}: {meta.rows} rows announced, {rows} in its columns")
    if infinite := [name for name, column in stored.items() if not is_finite(column)]:
        raise ValueError(f"reanalysis {meta.id.sequence}: not all numbers are finite in {', '.join(infinite)}")
    return encode_described(meta, stored, "reanalysis")


def read_reanalysis(path: Path, meta: Reanalysis) -> Columns:
    """Return the columns of the file that `meta` announced. They are read-only.

    Raises ChunkError when the file is not there, is not what was announced, or is damaged.
    """
    if path.name != meta.file or reanalysis_name(meta.id) != meta.file:
        raise ChunkError("wrong name", path, f"announced as {meta.file!r} of {meta.id}")
    columns = read_described(path, meta, _meta_in)
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

    Raises ChunkError when the header is damaged, the name does not fit it, or the file is not as long as it says."""
    meta = read_described_meta(path, _meta_in)
    if meta.file != file or reanalysis_name(meta.id) != file:
        raise ChunkError("lying header", path, f"its header says {meta.file!r} of {meta.id}")
    return meta


def _meta_in(path: Path, header: bytes) -> Reanalysis:
    try:
        return _REANALYSIS.decode(_HEADER.decode(header).metadata.reanalysis)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ChunkError("malformed", path, f"its header cannot be read: {error}") from error
