"""Payload files in data/: columns of chunks and of reanalyses, and checks of a file before use.

A payload is a safetensors file with its whole metadata in the header, so that an index can be rebuilt from headers
alone. It is written under a temporary name and renamed, without fsync: experience can be collected or computed again.
A reanalysis has columns of a chunk, recomputed with a newer target network.
"""

from __future__ import annotations

import errno
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from remuda.buffer.frames import check_columns
from remuda.storage.atomic import clock_s, sweep_temporaries, write_buffers
from remuda.storage.tensor_file import TensorFileError, encode_header, fingerprint, in_file_order, memory_of, views
from remuda.wire.messages import ChunkId, ChunkMeta, Reanalysis, ReanalysisId

Column = npt.NDArray[np.generic]
Columns = dict[str, Column]
"""Arrays by name, all with one row per training sample; images may be stored as in remuda.buffer.frames."""

Payload: TypeAlias = ChunkMeta | Reanalysis
"""Metadata in the header of a file in data/."""

AnyPayload = TypeVar("AnyPayload", bound=Payload)

ChunkFault = Literal[
    "missing", "unreadable", "wrong name", "wrong size", "wrong checksum", "malformed", "lying header", "pickle"
]

MUST_BE_FINITE = ("obs", "next_obs", "reward", "discount")
"""Columns with finite numbers only: a single nan or infinity would make training diverge, and end the run."""
_MAX_HEADER_BYTES = 16 << 20
MOST_BYTES = 2 << 30
"""Largest payload file. Announced sizes are believed up to here, since a reader takes as much memory."""
HEADER_AT_MOST_BYTES = 64 << 10
"""Most bytes of a reanalysis besides the columns, which are columns of the chunk: bounds the size of an honest file."""

NAME_FORMAT = "{}_{:06d}_{:09d}.safetensors"
"""Name of a chunk's file: worker, incarnation and sequence."""
REANALYSIS_SUFFIX = ".reanalysis.safetensors"
_SUFFIXES: Mapping[type[object], str] = {ChunkMeta: ".safetensors", Reanalysis: REANALYSIS_SUFFIX}
_STEM = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})_([0-9]{6}|[1-9][0-9]{6,15})_([0-9]{9}|[1-9][0-9]{9,15})"
)
"""Matches exactly the names from `chunk_name`, without the suffix."""
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")


class ChunkError(Exception):
    """An unusable payload file. `fault` is the kind, the message has file and details."""

    def __init__(self, fault: ChunkFault, path: Path, details: str) -> None:
        super().__init__(f"payload file {path.name!r}: {fault}: {details}")
        self.fault: ChunkFault = fault
        self.path = path


class _Header(msgspec.Struct):
    """Part of a safetensors header: the kind of a file in data/, and its metadata as JSON."""

    metadata: dict[str, str] = msgspec.field(name="__metadata__")


# Both are inspected by msgspec here, before threads: see remuda.training.journal.
_HEADER: msgspec.json.Decoder[_Header] = msgspec.json.Decoder(_Header)
_KINDS: Mapping[type[object], str] = {ChunkMeta: "chunk", Reanalysis: "reanalysis"}
for _kind in _KINDS:
    msgspec.json.Decoder(_kind)


# --- names ----------------------------------------------------------------------------------------------------------
def chunk_name(chunk: ChunkId) -> str:
    """Return the name of the chunk's payload file: worker, incarnation and sequence, so names sort by age."""
    return NAME_FORMAT.format(chunk.worker, chunk.incarnation, chunk.sequence)


def reanalysis_name(id: ReanalysisId) -> str:
    """Return the name of a reanalysis' file: worker, incarnation and sequence."""
    return f"{id.worker}_{id.incarnation:06d}_{id.sequence:09d}{REANALYSIS_SUFFIX}"


def parse_name(name: str, kind: type[object] = ChunkMeta) -> ChunkId:
    """Return worker, incarnation and sequence in the name of a file of this kind. Raises ChunkError for any other
    name."""
    match = _match(name, kind)
    if match:
        return ChunkId(worker=match[1], incarnation=int(match[2]), sequence=int(match[3]))
    raise ChunkError("wrong name", Path(name), f"not <worker uuid>_<incarnation>_<sequence>{_SUFFIXES[kind]}")


def _match(name: str, kind: type[object]) -> re.Match[str] | None:
    suffix = _SUFFIXES[kind]
    return _STEM.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None


def _id_and_name(meta: Payload) -> tuple[ChunkId | ReanalysisId, str]:
    """Return the id of a payload, and the name that belongs to the id."""
    return (meta.chunk, chunk_name(meta.chunk)) if isinstance(meta, ChunkMeta) else (meta.id, reanalysis_name(meta.id))


# --- writing --------------------------------------------------------------------------------------------------------
def write_chunk(data_dir: Path, meta: AnyPayload, columns: Mapping[str, Column]) -> AnyPayload:
    """Write the columns, each [rows, …], to the payload file in `data_dir`; return the metadata to announce.

    The returned metadata is `meta` with the size of the whole file as `payload_bytes`, and the checksum.

    Raises ValueError for columns that do not fit together or to `meta`, a dtype unknown to safetensors, or numbers that
    are not finite; OSError if the disk refuses.
    """
    meta, buffers = encode_chunk(meta, columns)
    write_buffers(data_dir / meta.file, buffers, durable=False)
    return meta


def encode_chunk(meta: AnyPayload, columns: Mapping[str, Column]) -> tuple[AnyPayload, list[bytes | memoryview]]:
    """Return the metadata to announce, and the content of the file, as for `write_chunk`. Raises the same
    ValueErrors.

    The size is the whole file's, including the header with the size itself; growing it until it fits ends after two or
    three rounds. The columns are not copied.
    """
    rows, stored = check_columns(columns), in_file_order(columns)
    named = f"{_KINDS[type(meta)]} {_id_and_name(meta)[0].sequence}"
    if rows != meta.rows:
        raise ValueError(f"{named}: {meta.rows} rows announced, {rows} in its columns")
    if isinstance(meta, Reanalysis):
        if infinite := [name for name, column in stored.items() if not is_finite(column)]:
            raise ValueError(f"{named}: not all numbers are finite in {', '.join(infinite)}")
    elif not math.isfinite(meta.collect_s) or not np.isfinite(meta.episode_returns).all():
        raise ValueError(f"{named}: the episode returns {meta.episode_returns} are not all finite")
    data_bytes = sum(column.nbytes for column in stored.values())
    if data_bytes > MOST_BYTES - _MAX_HEADER_BYTES:
        raise ValueError(f"{meta.file} would have {data_bytes} bytes of columns; the most is {MOST_BYTES}")
    meta = msgspec.structs.replace(meta, checksum=fingerprint(stored))
    while True:
        start = encode_header(stored, {_KINDS[type(meta)]: msgspec.json.encode(meta).decode()})
        size = len(start) + data_bytes
        if size == meta.payload_bytes:
            break
        meta = msgspec.structs.replace(meta, payload_bytes=size)
    return meta, [start, *memory_of(stored)]


# --- reading --------------------------------------------------------------------------------------------------------
def read_chunk(path: Path, meta: Payload) -> Columns:
    """Return the columns of the payload file in `meta`, read-only.

    Raises ChunkError if the file is missing, differs from `meta`, is damaged, or has rewards, observations or
    recomputed numbers that are not finite. Never follows a symbolic link and never reads more than the announced size.
    """
    id, name = _id_and_name(meta)
    if path.name != meta.file or name != meta.file:
        raise ChunkError("wrong name", path, f"announced as {meta.file!r} of {id}")
    columns = _read_columns(path, meta)
    try:
        rows = check_columns(columns)
    except ValueError as error:
        raise ChunkError("malformed", path, str(error)) from error
    if rows != meta.rows:
        raise ChunkError("lying header", path, f"{meta.rows} rows announced, {rows} in its columns")
    every = isinstance(meta, Reanalysis)
    for name, column in columns.items():
        if (every or name in MUST_BE_FINITE) and not is_finite(column):
            raise ChunkError("malformed", path, f"not all numbers are finite in {name}")
    return columns


def is_finite(column: Column) -> bool:
    """True if a column has neither nan nor an infinite number."""
    return column.dtype.kind != "f" or math.isfinite(float(np.abs(column).max(initial=0.0)))


def _read_columns(path: Path, meta: Payload) -> Columns:
    """Return the columns of a file, read-only. Raises ChunkError if the file is missing, differs from `meta`, or is
    damaged."""
    if meta.payload_bytes > MOST_BYTES:
        raise ChunkError("wrong size", path, f"{meta.payload_bytes} bytes announced; the most is {MOST_BYTES}")
    with _open(path) as file:
        if (size := os.fstat(file.fileno()).st_size) != meta.payload_bytes:
            raise ChunkError("wrong size", path, f"{size} bytes on disk, {meta.payload_bytes} announced")
        content = file.read(meta.payload_bytes)
    if len(content) != meta.payload_bytes:
        raise ChunkError("wrong size", path, f"{len(content)} bytes read, {meta.payload_bytes} announced")
    end = 8 + _header_bytes(path, content[:8], len(content))
    if _meta_in(path, content[8:end], type(meta)) != meta:
        raise ChunkError("lying header", path, "its metadata is not what was announced")
    columns = _columns_in(path, content[8:end], np.frombuffer(content, np.uint8)[end:])
    if fingerprint(columns) != meta.checksum:
        raise ChunkError("wrong checksum", path, "damaged on its way to or from the disk")
    return columns


def read_meta(path: Path) -> ChunkMeta:
    """Return the metadata in a chunk's header without reading the payload. Raises ChunkError like `meta_named`."""
    return meta_named(path.name, path, ChunkMeta)


def meta_named(name: str, path: Path, kind: type[AnyPayload]) -> AnyPayload:
    """Return the metadata in the header of a file that has this name in data/, and may have another one now.

    Raises ChunkError if the header is damaged, the name does not fit, or the file's length differs from the header.
    """
    parse_name(name, kind)
    with _open(path) as opened:
        size = os.fstat(opened.fileno()).st_size
        meta = _meta_in(path, opened.read(_header_bytes(path, opened.read(8), size)), kind)
    if meta.payload_bytes != size:
        raise ChunkError("wrong size", path, f"{size} bytes on disk, {meta.payload_bytes} in its header")
    id, own_name = _id_and_name(meta)
    if meta.file != name or own_name != name:
        raise ChunkError("lying header", path, f"its header says {meta.file!r} of {id}")
    return meta


def _open(path: Path) -> BinaryIO:
    """Open a regular file only: a link could leave data/, and a pipe would block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise ChunkError("missing", path, f"there is no such file in {path.parent}") from error
        if error.errno == errno.ELOOP:
            raise ChunkError("unreadable", path, "is a symbolic link, which is never followed") from error
        raise ChunkError("unreadable", path, str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ChunkError("unreadable", path, "is not a regular file")
    return open(descriptor, "rb", buffering=0)


def _header_bytes(path: Path, start: bytes, file_bytes: int) -> int:
    """Return how long the JSON part of the header is, given the first 8 bytes."""
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(_MAX_HEADER_BYTES, file_bytes - 8):
        # Told apart only here: a header of 640 bytes starts like a pickle, but no pickle starts with a small number.
        if start.startswith(_PICKLE_STARTS):
            raise ChunkError("pickle", path, "looks like a pickle; such files are never opened")
        raise ChunkError("malformed", path, f"a header of {length} bytes in a file of {file_bytes}")
    return length


def _meta_in(path: Path, header: bytes, kind: type[AnyPayload]) -> AnyPayload:
    try:
        metadata: dict[str, str] = _HEADER.decode(header).metadata
        if [*metadata] != [_KINDS[kind]]:
            raise ChunkError("malformed", path, f"its header is of no {_KINDS[kind]}")
        return msgspec.json.decode(metadata[_KINDS[kind]], type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ChunkError("malformed", path, f"its header cannot be read: {error}") from error


def _columns_in(path: Path, header: bytes, data: npt.NDArray[np.uint8]) -> Columns:
    """Return views of `data`."""
    try:
        return views(header, data)
    except TensorFileError as error:
        raise ChunkError("malformed", path, f"not a safetensors file of numpy columns: {error}") from error


# --- removing -------------------------------------------------------------------------------------------------------


def delete_chunks(data_dir: Path, files: Iterable[str]) -> None:
    """Delete payload files and reanalyses; missing files are fine. Raises ChunkError for other names."""
    folder = os.fspath(data_dir)
    for file in files:
        if not _is_ours(file):
            parse_name(file)  # says what is wrong with it
        with suppress(FileNotFoundError):
            os.unlink(f"{folder}/{file}")


def sweep_orphans(data_dir: Path, keep: Set[str]) -> None:
    """Delete unknown payload files and reanalyses, and temporary files of dead writers.

    `keep` has the names of the files still needed. A file from the future may be about to be announced and stays, and
    so do files other than payloads.
    """
    now_s = clock_s(data_dir)
    sweep_temporaries(data_dir, older_than_s=0.0, now_s=now_s)
    for entry in os.scandir(data_dir) if data_dir.is_dir() else ():
        if entry.name in keep or not _is_ours(entry.name) or entry.is_dir(follow_symlinks=False):
            continue
        try:
            if entry.stat(follow_symlinks=False).st_mtime < now_s:
                os.unlink(entry.path)
        except FileNotFoundError:
            continue  # its owner has deleted it


def _is_ours(file: str) -> bool:
    """True for the name of a payload file or of a reanalysis."""
    return any(_match(file, kind) for kind in _SUFFIXES)
