"""Tensors in the safetensors format: as the library reads and writes them, and nothing that does not fit."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from remuda.storage.tensor_file import (
    TensorFileError,
    checksum,
    encode_header,
    fingerprint,
    in_file_order,
    memory_of,
    views,
)

DTYPES = [np.dtype(code) for code in ("?", "u1", "i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8")]
TENSORS = st.dictionaries(
    st.text("abc.0", min_size=1, max_size=6),
    st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))),
    max_size=5,
)


def joined(tensors: dict[str, np.ndarray]) -> bytes:
    stored = in_file_order(tensors)
    return b"".join((encode_header(stored, {"k": "v"}), *memory_of(stored)))


def split(content: bytes) -> tuple[bytes, np.ndarray]:
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length], np.frombuffer(content, np.uint8, offset=8 + length)


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].tobytes() == tensor.tobytes()


@given(TENSORS)
def test_the_library_reads_what_is_written_and_so_do_we(tensors: dict[str, np.ndarray]) -> None:
    content = joined(tensors)
    assert_same(dict(safetensors.numpy.load(content)), tensors)
    assert_same(views(*split(content)), tensors)


@given(TENSORS)
def test_what_the_library_writes_is_read(tensors: dict[str, np.ndarray]) -> None:
    assert_same(views(*split(safetensors.numpy.save(tensors, {"k": "v"}))), tensors)


def test_every_tensor_is_a_view_and_aligned() -> None:
    tensors: dict[str, np.ndarray] = {
        "a": np.ones(3, np.uint8),
        "b": np.ones(5, np.float64),
        "c": np.ones((2, 3), np.float32),
    }
    header, rest = split(joined(tensors))
    for tensor in views(header, rest.copy()).values():
        assert not tensor.flags.owndata
        assert tensor.flags.aligned


@pytest.mark.parametrize("tensors", [{"a": np.ones(2, np.complex64)}, {"__metadata__": np.ones(2)}])
def test_what_cannot_be_stored_is_named(tensors: dict[str, np.ndarray]) -> None:
    with pytest.raises(TensorFileError, match="cannot be stored"):
        in_file_order(tensors)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "F31"}, "unknown dtype 'F31'"),
        ({"shape": [2, 2]}, "does not fit its bytes"),
        ({"shape": [-1, -2]}, "cannot be read"),
        ({"shape": [2] + [1] * 99}, "impossible shape"),
        ({"sparse": True}, "cannot be read"),
        ({"data_offsets": [4, 12]}, "does not begin where the one before it ends"),
        ({"data_offsets": [0, 4]}, "does not fit its bytes"),
    ],
)
def test_a_lying_header_is_refused(changes: dict[str, object], message: str) -> None:
    entry: dict[str, object] = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    with pytest.raises(TensorFileError, match=message):
        views(json.dumps({"a": entry}).encode(), np.zeros(8, np.uint8))


@pytest.mark.parametrize("length", [0, 4, 7, 9])
def test_data_of_another_length_is_refused(length: int) -> None:
    header, _ = split(joined({"a": np.ones(2, np.float32)}))
    with pytest.raises(TensorFileError, match=r"does not fit|belong to no tensor"):
        views(header, np.zeros(length, np.uint8))


@pytest.mark.parametrize("header", [b"", b"{", b"[]", b'{"a": 3}', b"\xff\xff", b'{"a":' + b"[" * 10_000])
def test_a_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(TensorFileError, match="header cannot be read"):
        views(header, np.zeros(8, np.uint8))


def test_a_fingerprint_is_of_names_dtypes_shapes_and_bytes_in_whatever_order() -> None:
    tensors: dict[str, np.ndarray] = {"a": np.arange(4, dtype=np.float32), "b": np.arange(4, dtype=np.int32)}
    known = fingerprint(tensors)
    assert fingerprint(dict(reversed(tensors.items()))) == known
    others: list[dict[str, np.ndarray]] = [
        {"a": tensors["a"], "c": tensors["b"]},
        {"a": tensors["a"], "b": tensors["b"].view(np.uint32)},
        {"a": tensors["a"], "b": tensors["b"].reshape(2, 2)},
        {"a": tensors["a"], "b": tensors["b"][::-1].copy()},
    ]
    assert known not in [fingerprint(other) for other in others]
    assert fingerprint(tensors, 1) != known


def test_a_small_array_has_its_crc32() -> None:
    array = np.arange(1_000, dtype=np.float32)
    assert checksum(array, 7) == zlib.crc32(array.tobytes(), 7)


def test_the_number_is_the_same_for_ever() -> None:
    """It stands in the headers of files that an earlier version has written."""
    array = np.arange(10_000, dtype=np.uint64)
    by_hand = 0
    for stride, blocks in ((512, 19), (509, 19)):
        sums = [sum(range(place, blocks * stride, stride)) for place in range(stride)]
        rest = list(range(blocks * stride, 10_000))
        for part in (sums, rest):
            by_hand = zlib.crc32(b"".join(number.to_bytes(8, "little") for number in part), by_hand)
    assert checksum(array, 0) == by_hand
