"""Messages of streams and their bytes: each kind with as many as it may have, and no others."""

from __future__ import annotations

import pytest

from remuda.wire.codec import CodecError, Frame
from remuda.wire.messages import Grant
from remuda.wire.streams import (
    LIMITS,
    WHOLE_BYTES,
    WHOLE_PARTS,
    Cancel,
    FromWorker,
    LogAppend,
    Piece,
    Put,
    decode,
    encode,
    of_workers,
)

GRANT = Grant("runs/x", "collector", "aaaaaaaa-0000-4000-8000-000000000001", 1, "policy_x")
HEADER, CANCEL = (bytes(frame) for frame in encode(Cancel(1)))
PARTS = [b"a" * 100_000, b"b", b"c" * 7]


def put(*parts: Frame) -> Put:
    return Put(1, GRANT, "chunk", "file", sum(map(len, parts)))


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (put(*PARTS), PARTS),
        (put(*PARTS), []),  # its pieces follow
        (Piece(1, 0), PARTS[:1]),
        (LogAppend(1, GRANT, 0), [b"line"]),
        (Cancel(1), []),
    ],
)
def test_what_is_encoded_is_decoded_again(message: FromWorker, parts: list[bytes]) -> None:
    found, data = decode(encode(message, *parts), of_workers)
    assert found == message
    assert [bytes(each) for each in data] == parts


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (put(b""), [b""]),
        (put(*[b"x"] * (WHOLE_PARTS + 1)), [b"x"] * (WHOLE_PARTS + 1)),
        (put(b"x" * (WHOLE_BYTES + 1)), [b"x" * (WHOLE_BYTES + 1)]),
        (Piece(1, 0), [b"a", b"b"]),
        (Piece(1, 0), []),
        (LogAppend(1, GRANT, 0), []),
        (Cancel(1), [b"bytes"]),
    ],
)
def test_bytes_that_do_not_belong_are_refused(message: FromWorker, parts: list[bytes]) -> None:
    with pytest.raises(CodecError):
        decode(encode(message, *parts), of_workers)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([HEADER], "of another kind, or of another version"),
        ([b"R" + HEADER[1:], CANCEL], "of another kind, or of another version"),
        ([HEADER[:1] + b"\x00", CANCEL], "of another kind, or of another version"),
        ([HEADER, bytes(LIMITS.header_bytes + 1)], f"the most is {LIMITS.header_bytes}"),
        ([HEADER, bytes(LIMITS.header_bytes)], "malformed message"),
    ],
)
def test_frames_without_a_message_of_streams_are_refused(frames: list[Frame], reason: str) -> None:
    with pytest.raises(CodecError, match=reason):
        decode(frames, of_workers)


def test_a_whole_file_fits_into_what_a_socket_takes() -> None:
    assert WHOLE_PARTS * LIMITS.array_bytes >= WHOLE_BYTES
    assert LIMITS.arrays == WHOLE_PARTS
