"""Messages and sockets between collectors and the inference workers of their run.

    frame 0   b"I" and one byte, the protocol version
    frame 1   an Ask or an Answer in MessagePack
    frame 2…  the arrays' bytes, C order, little-endian

Collectors and inference workers have a new pair of keys for each lease. The coordinator tells the collectors of a run
the public keys of its inference workers, and the other way round; nobody else is let in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Annotated, TypeVar, cast

import msgspec
import numpy as np
import zmq
from msgspec import Meta, Struct

from remuda.wire.codec import CodecError, Frame, Limits, decode_header
from remuda.wire.door import Door
from remuda.wire.keys.authorized import Identity
from remuda.wire.keys.folder import CallerKeys
from remuda.wire.keys.pair import KeyPair, new_pair
from remuda.wire.messages import PROTOCOL_VERSION, Count, InferenceCallers, InferenceServer, PolicyRef
from remuda.wire.router import RouterSocket
from remuda.wire.sockets import DealerSocket

LIMITS = Limits(header_bytes=16 << 10, array_bytes=256 << 20, arrays=8)
"""Limits of both ends."""
_OPENING = b"I" + bytes([PROTOCOL_VERSION])
_HIGH_WATER_MESSAGES = 100
_LARGE_BYTES = 64 << 10
_DTYPES = {"|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"}

Arrays = Mapping[str, np.ndarray]
_Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,49}\Z")]


class ArrayForm(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An array among the frames, in their order."""

    name: _Name
    dtype: str
    shape: Annotated[tuple[Annotated[int, Meta(ge=0, le=1 << 31)], ...], Meta(min_length=1, max_length=8)]
    """The first dimension is the number of observations, equal in all arrays of a message."""


class Ask(Struct, frozen=True, forbid_unknown_fields=True):
    """Request of a collector for an output of a policy's network. A collector waits for the answer before the next
    request, and repeats a request without an answer, also to another inference worker."""

    number: Count
    """Counts up with every different Ask of the collector."""
    policy_index: Count
    """Index of the policy, in the order of names; for several policies."""
    place: Count
    """Index of the function among those of the policy."""
    output: _Name
    policy: PolicyRef
    """Version by which the collector acts; older versions are never used."""
    arrays: Annotated[list[ArrayForm], Meta(min_length=1, max_length=LIMITS.arrays)]

    @property
    def rows(self) -> int:
        """Number of observations."""
        return self.arrays[0].shape[0]


class Answer(Struct, frozen=True, forbid_unknown_fields=True):
    """The output for each observation of an Ask."""

    number: Count
    policy: PolicyRef
    """Version that computed the output: the version of the Ask, or a newer one."""
    arrays: Annotated[list[ArrayForm], Meta(min_length=1, max_length=LIMITS.arrays)]


_Message = TypeVar("_Message", Ask, Answer)
_encoder = msgspec.msgpack.Encoder()
_asks = msgspec.msgpack.Decoder(Ask)
_answers = msgspec.msgpack.Decoder(Answer)


def forms(arrays: Arrays) -> list[ArrayForm]:
    """Return the forms of arrays for a message."""
    return [ArrayForm(name, array.dtype.str, array.shape) for name, array in arrays.items()]


def encode(message: Ask | Answer, arrays: Arrays) -> list[Frame]:
    """Return the frames to send; contiguous arrays are not copied."""
    # cast() refuses arrays with a zero in their shape
    data = [np.ascontiguousarray(array).data.cast("B") if array.size else b"" for array in arrays.values()]
    return [_OPENING, _encoder.encode(message), *data]


def decode_ask(frames: Sequence[Frame]) -> tuple[Ask, Arrays]:
    """Return an Ask and its arrays, read-only. Raises CodecError."""
    return _decode(frames, _asks)


def decode_answer(frames: Sequence[Frame]) -> tuple[Answer, Arrays]:
    """Return an Answer and its arrays, read-only. Raises CodecError."""
    return _decode(frames, _answers)


def _decode(frames: Sequence[Frame], decoder: msgspec.msgpack.Decoder[_Message]) -> tuple[_Message, Arrays]:
    message = decode_header(frames, decoder, _OPENING, LIMITS.header_bytes)
    if len(message.arrays) != len(frames) - 2:
        raise CodecError(f"{len(message.arrays)} arrays in {len(frames) - 2} frames")
    if len({form.name for form in message.arrays}) < len(message.arrays):
        raise CodecError("two arrays have one name")
    rows, size = message.arrays[0].shape[0], sum(map(len, frames[2:]))
    if rows > size:  # arrays without content may claim any number, and answers would be as large
        raise CodecError(f"{rows} observations in {size} bytes")
    return message, {
        form.name: _array(form, frame, rows) for form, frame in zip(message.arrays, frames[2:], strict=True)
    }


def _array(form: ArrayForm, frame: Frame, rows: int) -> np.ndarray:
    if form.dtype not in _DTYPES:
        raise CodecError(f"array {form.name} has the unknown dtype {form.dtype[:16]}")
    if form.shape[0] != rows or rows < 1:
        raise CodecError(f"array {form.name} has {form.shape[0]} rows, and the first array {rows}")
    dtype = np.dtype(form.dtype)
    if math.prod(form.shape) * dtype.itemsize != len(frame):
        raise CodecError(f"array {form.name}: shape {form.shape} does not fit {len(frame)} bytes")
    array = np.frombuffer(frame, dtype)
    array.flags.writeable = False
    return array.reshape(form.shape)


class _Callers:
    """The authorized keys of an inference worker: those of the collectors of the run."""

    def __init__(self) -> None:
        self.keys = set[str]()

    def who(self, public: str) -> Identity | None:
        """See AuthorizedKeys."""
        return Identity("collector", "worker") if public in self.keys else None

    ask = who


class InferenceRouter(RouterSocket):
    """The end of an inference worker, under a lease."""

    def __init__(self, host: str) -> None:
        """Listen at any free port of this address of the machine; nobody is let in yet. Raises zmq.ZMQError and
        NoCurveError."""
        own, self._callers = new_pair("inference"), _Callers()
        where = f"[{host}]" if ":" in host else host
        super().__init__(
            f"tcp://{where}:0",
            Door(own, self._callers),
            inbound=LIMITS,
            outbound=LIMITS,
            high_water=_HIGH_WATER_MESSAGES,
        )
        self.told = InferenceServer(self.address, own.public)
        """What collectors need to connect."""

    def let_in(self, news: InferenceCallers) -> None:
        """Let in the collectors of this message."""
        if news.whole:
            self._callers.keys.clear()
        self._callers.keys.difference_update(news.gone)
        self._callers.keys.update(news.keys)

    def take(self) -> list[tuple[bytes, Ask, Arrays]]:
        """Return what collectors have asked since the last call, with their routing ids. Counts and skips malformed
        messages; skips those of collectors that are let in no more."""
        found: list[tuple[bytes, Ask, Arrays]] = []
        while (frames := self._receive()) is not None:
            peer, *rest = frames
            if self._who is None:
                continue
            try:
                found.append((bytes(peer), *decode_ask(rest)))
            except CodecError:
                self.malformed += 1
        return found

    def say(self, peer: bytes, answer: Answer, arrays: Arrays) -> bool:
        """Send an answer; False if the collector is gone."""
        return self._send_frames([peer], encode(answer, arrays))

    def _content(self, frame: zmq.Frame) -> Frame:
        """See the base: large frames are not copied."""
        return frame.bytes if len(frame) < _LARGE_BYTES else frame.buffer


class InferenceDealer(DealerSocket):
    """A collector's end of the connection to one inference worker."""

    def __init__(self, server: InferenceServer, own: KeyPair) -> None:
        """Connect in the background, with the pair of keys of the collector's lease."""
        name = f"inference:{token_hex(12)}".encode()
        super().__init__(
            server.address, name, CallerKeys(server.key, own), LIMITS, LIMITS, high_water=_HIGH_WATER_MESSAGES
        )

    def say(self, ask: Ask, arrays: Arrays) -> bool:
        """Send an Ask; False if the queue is full."""
        return self._send_frames([], encode(ask, arrays))

    def take(self, number: int) -> tuple[Answer, Arrays] | None:
        """Return the answer to the Ask with this number, if it has come. Skips others."""
        while (frames := self._receive()) is not None:
            try:
                answer, arrays = decode_answer(frames)
            except CodecError:
                self.malformed += 1
                continue
            if answer.number == number:
                return answer, arrays
        return None

    def _content(self, frame: zmq.Frame) -> Frame:
        """See the base: large frames are not copied."""
        return frame.bytes if len(frame) < _LARGE_BYTES else cast("Frame", frame.buffer)
