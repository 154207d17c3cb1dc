"""Encodes envelopes as frames and decodes frames; the only module with MessagePack.

    frame 0   b"R" and one byte, the protocol version
    frame 1   the envelope in MessagePack; an array in it is [its index among frames 2…, dtype, shape]
    frame 2…  the arrays' bytes, C order, little-endian

Frame 0, the order of the envelope's fields and the message Rejected are the same in every version, so that peers of
different versions can report the mismatch.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import Annotated, NoReturn, TypeAlias, TypeVar, cast, get_args

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from remuda.wire.messages import PROTOCOL_VERSION, AnyMessage, Count


class Envelope(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One message with its numbers. The order of the fields is the layout on the wire and never changes."""

    id: Count
    """Counts up from 1 with every reliable message of this end; 0 for messages that are never sent again."""
    reply_to: Count
    """Id of the answered and acknowledged message of the peer; 0: none."""
    floor: Count
    """The sender's lowest unacknowledged id: answers to older messages need not be kept."""
    message: AnyMessage


class Limits(Struct, frozen=True):
    """Size limits of a message, by the kind of sender."""

    header_bytes: int
    """Of frame 1."""
    array_bytes: int
    """Bytes of each array."""
    arrays: int


OF_COORDINATORS = Limits(header_bytes=64 << 20, array_bytes=256 << 20, arrays=16)
"""The largest message is a learner's Assign, which lists every chunk of a replay with about 400 bytes each."""
OF_WORKERS = Limits(header_bytes=16 << 20, array_bytes=64 << 20, arrays=2)
"""For registered workers. The largest messages are a learner's priorities and an evaluator's results."""
OF_STRANGERS = Limits(header_bytes=2 << 20, array_bytes=0, arrays=0)
"""For clients and unregistered workers. The largest messages are a config with its git diff, and the positions in ten
thousand logs."""
_LARGEST_ARRAY_BYTES = OF_COORDINATORS.array_bytes

_Header = TypeVar("_Header")
_MAGIC = b"R"
_OPENING = _MAGIC + bytes([PROTOCOL_VERSION])
_MAX_DIMENSIONS = 8
_DTYPES = {"|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"}

Frame: TypeAlias = bytes | memoryview
_Array: TypeAlias = NDArray[np.generic]


class CodecError(ValueError):
    """An unsendable message, or frames without a valid message; the text names the problem and the field."""


class TooEarlyError(CodecError):
    """The message has arrays, which only registered workers may send, and its sender is not registered (any more)."""


class TooLargeError(CodecError):
    """The message exceeds the limits of its sender."""


class ProtocolMismatchError(CodecError):
    """The peer speaks another version of the protocol. Answer with Rejected, encoded with `protocol=error.theirs`."""

    def __init__(self, theirs: int) -> None:
        super().__init__(f"the peer speaks protocol {theirs}, this process protocol {PROTOCOL_VERSION}")
        self.theirs = theirs


def encode(envelope: Envelope, *, protocol: int = PROTOCOL_VERSION, limits: Limits = OF_COORDINATORS) -> list[Frame]:
    """Return the frames to send. Arrays are not copied: do not change them until they are sent.

    `protocol` differs only for a Rejected to a peer of another version. Raises CodecError if the message has unsendable
    content or exceeds `limits`.
    """
    return _writer.write(envelope, protocol, limits)


def decode(frames: Sequence[Frame], limits: Limits = OF_COORDINATORS) -> Envelope:
    """Return the envelope in `frames`, validated field by field; its arrays are read-only views of the frames.

    Raises ProtocolMismatchError for a peer of another version, and CodecError for frames without a message.
    """
    if len(frames) < 2:
        raise CodecError(f"a message has at least 2 frames, not {len(frames)}")
    if frames[0] != _OPENING:
        _refuse_opening(bytes(frames[0][:3]))
    _check_sizes(frames, limits)
    return _reader.read(frames)


def check(envelope: Envelope, limits: Limits = OF_COORDINATORS) -> None:
    """Raise CodecError if the other end would refuse this envelope (for instance for a too long text)."""
    decode(encode(envelope, limits=limits), limits)


def decode_header(
    frames: Sequence[Frame], decoder: msgspec.msgpack.Decoder[_Header], opening: bytes, most_bytes: int
) -> _Header:
    """Return the message in frame 1 of a socket with messages of its own; `opening` is its frame 0. Raises
    CodecError."""
    if len(frames) < 2 or bytes(frames[0][: len(opening)]) != opening:
        raise CodecError("a message of another kind, or of another version of Remuda")
    if len(frames[1]) > most_bytes:
        raise CodecError(f"a message of {len(frames[1])} bytes; the most is {most_bytes}")
    try:
        return decoder.decode(frames[1])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"malformed message: {error}") from error


def _refuse_opening(prefix: bytes) -> NoReturn:
    if len(prefix) != 2 or prefix[:1] != _MAGIC:
        raise CodecError(
            f"frame 0 is {prefix!r}…, not {_MAGIC!r} and a version: the peer does not speak Remuda's protocol"
        )
    raise ProtocolMismatchError(prefix[1])


def _check_sizes(frames: Sequence[Frame], limits: Limits) -> None:
    if len(frames[1]) > limits.header_bytes:
        raise TooLargeError(f"the header has {len(frames[1])} bytes; the most is {limits.header_bytes}")
    if len(frames) == 2:
        return
    if len(frames) - 2 > limits.arrays:
        raise TooLargeError(f"{len(frames) - 2} arrays in one message; the most is {limits.arrays}")
    for number, frame in enumerate(frames[2:]):
        if len(frame) > limits.array_bytes:
            raise TooLargeError(f"array {number} has {len(frame)} bytes; the most is {limits.array_bytes}")


class _ArrayReference(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Stands in the envelope for an array."""

    place: int
    """Among the array frames."""
    dtype: str
    shape: Annotated[tuple[Annotated[int, Meta(ge=0, le=_LARGEST_ARRAY_BYTES)], ...], Meta(max_length=_MAX_DIMENSIONS)]


class _Writer(threading.local):
    """Encoder of a thread, and the array frames of the present message."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._take_array)
        self._arrays: list[Frame] = []

    def write(self, envelope: Envelope, protocol: int, limits: Limits) -> list[Frame]:
        try:
            header = self._encoder.encode(envelope)
            opening = _OPENING if protocol == PROTOCOL_VERSION else _MAGIC + bytes([protocol])
            frames = [opening, header, *self._arrays]
            _check_sizes(frames, limits)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CodecError(f"{type(envelope.message).__name__} cannot be sent: {error}") from error
        finally:
            self._arrays = []
        return frames

    def _take_array(self, value: object) -> _ArrayReference:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} cannot be part of a message")
        array = cast("_Array", value)
        dtype = array.dtype.str
        if dtype not in _DTYPES or array.ndim > _MAX_DIMENSIONS:
            raise TypeError(f"an array of dtype {dtype} with {array.ndim} dimensions cannot be sent")
        # cast() refuses arrays with a zero in their shape
        self._arrays.append(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        return _ArrayReference(len(self._arrays) - 1, dtype, array.shape)


class _Reader(threading.local):
    """Decoder of a thread, and the array frames of the present message."""

    def __init__(self) -> None:
        self._decoder = msgspec.msgpack.Decoder(Envelope, dec_hook=self._give_array)
        self._arrays: dict[int, Frame] = {}
        """Frames that no field has used yet."""

    def read(self, frames: Sequence[Frame]) -> Envelope:
        arrays = self._arrays = dict(enumerate(frames[2:]))
        try:
            envelope = self._decoder.decode(frames[1])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CodecError(f"malformed message: {error}") from error
        finally:
            self._arrays = {}
        if arrays:
            raise CodecError(f"malformed message: no field refers to array frames {sorted(arrays)}")
        return envelope

    def _give_array(self, declared: type, value: object) -> _Array:
        """Return the array of a reference. Raises ValueError, to which msgspec adds the path of the field."""
        try:
            at = msgspec.convert(value, _ArrayReference)
        except msgspec.ValidationError as error:
            raise ValueError(f"not a reference to an array: {error}") from None
        dtype = _declared_dtype(declared)
        if at.dtype != dtype.str:
            raise ValueError(f"array of dtype {at.dtype[:16]} where {dtype.str} belongs")
        frame = self._arrays.pop(at.place, None)
        if frame is None:
            raise ValueError(f"array frame {at.place} is missing or used twice")
        if math.prod(at.shape) * dtype.itemsize != len(frame):
            raise ValueError(
                f"shape {at.shape} of {dtype.str} does not fit the {len(frame)} bytes of array frame {at.place}"
            )
        array = np.frombuffer(frame, dtype)
        array.flags.writeable = False
        return array.reshape(at.shape)


@cache
def _declared_dtype(declared: type) -> np.dtype[np.generic]:
    """Return the dtype in a field's annotation `NDArray[…]`, which is ndarray[shape, dtype[scalar]]."""
    scalar: type[np.generic] = get_args(get_args(declared)[1])[0]
    return np.dtype(scalar)


_writer = _Writer()
_reader = _Reader()

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("Remuda sends arrays as they lie in memory and runs on little-endian machines only")
