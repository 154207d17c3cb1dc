"""Tensors by name in the safetensors format: written as they lie in memory, read as views of one buffer.

The library copies every tensor twice on either way, which is most of what publishing to many readers costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
from msgspec import Struct

METADATA = "__metadata__"
_ALIGNMENT_BYTES = 8
_DTYPES = {
    name: np.dtype(code)
    for name, code in (
        *(("BOOL", "?"), ("U8", "u1"), ("I8", "i1"), ("U16", "<u2"), ("I16", "<i2"), ("F16", "<f2")),
        *(("U32", "<u4"), ("I32", "<i4"), ("F32", "<f4"), ("U64", "<u8"), ("I64", "<i8"), ("F64", "<f8")),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class TensorFileError(ValueError):
    """Bytes that are no tensors, or tensors that cannot be stored."""


class _Entry(Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def parts(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """Return what the file consists of: its header, and the tensors' bytes in the order in which they follow.

    Raises TensorFileError for a dtype that the format does not know.
    """
    entries: dict[str, object] = {METADATA: metadata}
    stored: list[memoryview] = []
    end = 0
    # The widest first, so that each is aligned.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        little = np.asarray(tensor, dtype=tensor.dtype.newbyteorder("<"), order="C")
        if little.dtype not in _NAMES or name == METADATA:
            raise TensorFileError(f"tensor {name!r} of dtype {tensor.dtype} cannot be stored")
        start, end = end, end + little.nbytes
        entries[name] = _Entry(_NAMES[little.dtype], little.shape, (start, end))
        stored.append(little.reshape(-1).view(np.uint8).data)
    text = msgspec.json.encode(entries)
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return [len(text).to_bytes(8, "little") + text, *stored]


def views(header: bytes, data: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tensors that a header describes, as views of `data`, uint8 [n]: all that follows the header.

    Raises TensorFileError unless the tensors fill `data` exactly, one after the other.
    """
    try:
        entries = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        entries.pop(METADATA, None)
        described = {name: msgspec.json.decode(entry, type=_Entry) for name, entry in entries.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TensorFileError(f"its header cannot be read: {error}") from error
    tensors: dict[str, np.ndarray] = {}
    end = 0
    for name, entry in sorted(described.items(), key=lambda item: item[1].data_offsets):
        start, next_end = entry.data_offsets
        dtype = _DTYPES.get(entry.dtype)
        if dtype is None:
            raise TensorFileError(f"tensor {name!r} has the unknown dtype {entry.dtype!r}")
        if start != end or any(length < 0 for length in entry.shape):
            raise TensorFileError(f"tensor {name!r} does not begin where the one before it ends, or has no shape")
        if next_end - start != math.prod(entry.shape) * dtype.itemsize or next_end > len(data):
            raise TensorFileError(
                f"tensor {name!r} of shape {entry.shape} does not fit its bytes {start} to {next_end}"
            )
        tensors[name] = data[start:next_end].view(dtype).reshape(entry.shape)
        end = next_end
    if end != len(data):
        raise TensorFileError(f"tensors of {end} bytes in a file with {len(data)}")
    return tensors
