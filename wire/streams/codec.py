"""How a message of a stream becomes frames and back.

frame 0   b"S" and one byte, the protocol version
frame 1   the message in MessagePack
frame 2   of Piece and LogAppend: their bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np

from remuda.storage.checksum import checksum
from remuda.wire.codec import CodecError, Frame, Limits
from remuda.wire.messages import PROTOCOL_VERSION
from remuda.wire.streams.messages import PIECE_BYTES, FromServer, FromWorker, LogAppend, Piece

LIMITS = Limits(header_bytes=16 << 10, array_bytes=PIECE_BYTES + 1_024, arrays=1)
"""Of both ends. ZeroMQ counts what CURVE adds to a frame, too."""
_OPENING = b"S" + bytes([PROTOCOL_VERSION])
_WITH_BYTES = (Piece, LogAppend)

_Any = TypeVar("_Any", FromWorker, FromServer)

_encoder = msgspec.msgpack.Encoder()
of_workers: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
"""Reads what workers say."""
of_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)
"""Reads what the server says."""


def encode(message: FromWorker | FromServer, data: Frame | None = None) -> list[Frame]:
    """Return the frames to send; the bytes are not copied."""
    head: list[Frame] = [_OPENING, _encoder.encode(message)]
    return head if data is None else [*head, data]


def decode(frames: Sequence[Frame], decoder: msgspec.msgpack.Decoder[_Any]) -> tuple[_Any, Frame]:
    """Return the message in these frames, and its bytes, whose checksum is right. Raises CodecError."""
    if len(frames) not in (2, 3) or bytes(frames[0][:3]) != _OPENING:
        raise CodecError("not a message of a stream, or of another version of Remuda")
    if len(frames[1]) > LIMITS.header_bytes:
        raise CodecError(f"a message of {len(frames[1])} bytes; the most is {LIMITS.header_bytes}")
    try:
        message = decoder.decode(frames[1])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"malformed message: {error}") from error
    data = frames[2] if len(frames) == 3 else b""
    if isinstance(message, _WITH_BYTES) != (len(frames) == 3):
        raise CodecError(f"{type(message).__name__} with {len(frames)} frames")
    if isinstance(message, _WITH_BYTES) and (not 0 < len(data) <= PIECE_BYTES or checksum_of(data) != message.checksum):
        raise CodecError(f"{len(data)} bytes of a file that are not what was sent")
    return message, data


def checksum_of(data: Frame) -> int:
    """The checksum of a piece."""
    return checksum(np.frombuffer(data, np.uint8), 0)
