"""How a message of a stream becomes frames and back.

frame 0   b"S" and one byte, the protocol version
frame 1   the message in MessagePack
frame 2   of Piece and LogAppend: their bytes
frame 2…  of a Put that brings a whole file: its bytes

The bytes have no checksum here. CURVE authenticates each frame: one that was changed on its way ends the connection.
And payloads, policies and checkpoints have a checksum of their own, from who makes them to who reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from remuda.wire.codec import CodecError, Frame, Limits
from remuda.wire.messages import PROTOCOL_VERSION
from remuda.wire.streams.messages import (
    PIECE_BYTES,
    WHOLE_BYTES,
    WHOLE_PARTS,
    FromServer,
    FromWorker,
    LogAppend,
    Piece,
    Put,
)

LIMITS = Limits(header_bytes=16 << 10, array_bytes=PIECE_BYTES + 1_024, arrays=WHOLE_PARTS)
"""Of both ends. ZeroMQ counts what CURVE adds to a frame, too."""
_OPENING = b"S" + bytes([PROTOCOL_VERSION])

_Any = TypeVar("_Any", FromWorker, FromServer)

_encoder = msgspec.msgpack.Encoder()
of_workers: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
"""Reads what workers say."""
of_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)
"""Reads what the server says."""


def encode(message: FromWorker | FromServer, *data: Frame) -> list[Frame]:
    """Return the frames to send; the bytes are not copied."""
    return [_OPENING, _encoder.encode(message), *data]


def decode(frames: Sequence[Frame], decoder: msgspec.msgpack.Decoder[_Any]) -> tuple[_Any, Sequence[Frame]]:
    """Return the message in these frames, and the frames with bytes that belong to it: as many as it may have. Raises
    CodecError."""
    if len(frames) < 2 or bytes(frames[0][:3]) != _OPENING:
        raise CodecError("not a message of a stream, or of another version of Remuda")
    if len(frames[1]) > LIMITS.header_bytes:
        raise CodecError(f"a message of {len(frames[1])} bytes; the most is {LIMITS.header_bytes}")
    try:
        message = decoder.decode(frames[1])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"malformed message: {error}") from error
    data = frames[2:]
    least, most, most_bytes = _data_of(message)
    if not least <= len(data) <= most:
        raise CodecError(f"{type(message).__name__} with {len(frames)} frames")
    size = sum(map(len, data))
    if data and not 0 < size <= most_bytes:
        raise CodecError(f"{type(message).__name__} with {size} bytes of a file; the most is {most_bytes}")
    return message, data


def _data_of(message: FromWorker | FromServer) -> tuple[int, int, int]:
    """The least and the most frames with bytes that belong to a message, and the most bytes in them."""
    match message:
        case Put():
            return 0, WHOLE_PARTS, WHOLE_BYTES
        case Piece() | LogAppend():
            return 1, 1, PIECE_BYTES
        case _:
            return 0, 0, 0
