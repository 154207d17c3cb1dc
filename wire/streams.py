"""Messages and sockets between a worker without the runs folder and the stream server with the folder.

The sockets have the same keys and the same door as the coordinator's, and far fewer messages waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from secrets import token_hex
from typing import Annotated, Literal, TypeVar

import msgspec
import zmq
from msgspec import Meta, Struct

from remuda.wire.codec import CodecError, Frame, Limits, decode_header
from remuda.wire.door import Door
from remuda.wire.keys.folder import CallerKeys
from remuda.wire.messages import PROTOCOL_VERSION, Count, FileName, Grant, PolicyRef, ShortText
from remuda.wire.router import RouterSocket
from remuda.wire.sockets import DealerSocket

PIECE_BYTES = 512 << 10
"""Most bytes of a file in one frame."""
WHOLE_BYTES = 2 << 20
"""A file of at most this size is sent whole, in one message."""
WHOLE_PARTS = 16
"""Most frames with bytes in such a message."""
WINDOW_BYTES = 4 << 20
"""Most bytes of a file in flight: sent, and not confirmed by the other end."""
MOST_FILE_BYTES = 4 << 30
"""Most bytes of one file."""

FileBytes = Annotated[int, Meta(ge=0, le=MOST_FILE_BYTES)]
PutKind = Literal["chunk", "reanalysis", "description"]
"""Files from workers: payloads, reanalyses, and env_spec.json."""
GetKind = Literal["policy", "target", "checkpoint", "chunk", "reanalysis"]
"""Files for workers: the policy file and the target network's file, checkpoints and payloads."""


PolicyPart = Annotated[str, Meta(pattern=r"^([a-z][a-z0-9_]{0,49})?$")]
"""Name of one of several policies; empty in a run with one policy."""


class StreamMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of every message: immutable, tagged with its class name, without unknown fields."""


# --- both ways ---


class Piece(StreamMessage, frozen=True):
    """Bytes of a file, in the frame after the message."""

    transfer: Count
    offset: FileBytes
    """Position of the first byte in the file."""


# --- of workers ---


class Put(StreamMessage, frozen=True):
    """Request to put a file into the run folder. Answered by Begin, Stored or Refused; repeated after a break.

    The bytes of a short file are in the frames after the message. A longer file follows in pieces after Begin.
    """

    transfer: Count
    """The worker's number of the transfer; counts up from 1 in every process."""
    grant: Grant
    kind: PutKind
    file: FileName
    size_bytes: FileBytes
    policy: PolicyPart = ""


class Get(StreamMessage, frozen=True):
    """Request to fetch a file. Answered by Opened, NothingNewer or Refused; repeated after a break."""

    transfer: Count
    grant: Grant
    kind: GetKind
    file: FileName
    offset: FileBytes = 0
    """The worker has all bytes below this offset already."""
    newer_than: PolicyRef | None = None
    """The worker wants only a policy newer than this (by epoch, then version)."""
    policy: PolicyPart = ""


class Took(StreamMessage, frozen=True):
    """All bytes of a fetched file below `below` have arrived."""

    transfer: Count
    below: FileBytes


class Cancel(StreamMessage, frozen=True):
    """The transfer is not needed any more. Not answered."""

    transfer: Count


class LogAppend(StreamMessage, frozen=True):
    """The next bytes of this worker's log, in the frame after the message. Answered by LogHas or Refused."""

    transfer: Count
    """The worker's number for this log."""
    grant: Grant
    offset: FileBytes


# --- of the server ---


class Begin(StreamMessage, frozen=True):
    """The file may be sent; the server has all bytes below `offset` already."""

    transfer: Count
    offset: FileBytes


class Written(StreamMessage, frozen=True):
    """All bytes below `below` are written."""

    transfer: Count
    below: FileBytes


class Stored(StreamMessage, frozen=True):
    """The file was checked, and is in the run folder under its name."""

    transfer: Count


class Opened(StreamMessage, frozen=True):
    """The file exists with this size. Its pieces follow."""

    transfer: Count
    size_bytes: FileBytes


class NothingNewer(StreamMessage, frozen=True):
    """The published policy is not newer than the worker's policy."""

    transfer: Count


class LogHas(StreamMessage, frozen=True):
    """Present size of the log in the run folder."""

    transfer: Count
    size_bytes: Count


class Refused(StreamMessage, frozen=True):
    """The server refuses and ends the transfer."""

    transfer: Count
    reason: ShortText
    again: bool
    """True if the worker may try again: the disk is full, the server is busy, or it was restarted."""
    missing: bool = False
    """True if the file does not exist."""
    no_room: bool = False
    """True if the run's disk has no room for the file."""


FromWorker = Put | Get | Piece | Took | Cancel | LogAppend
FromServer = Begin | Written | Stored | Opened | NothingNewer | Piece | LogHas | Refused

# --- frames and sockets ---

LIMITS = Limits(header_bytes=16 << 10, array_bytes=PIECE_BYTES + 1_024, arrays=WHOLE_PARTS)
"""Limits of both ends. ZeroMQ also counts the bytes that CURVE adds to a frame."""

_OPENING = b"S" + bytes([PROTOCOL_VERSION])

_Any = TypeVar("_Any", FromWorker, FromServer)

_encoder = msgspec.msgpack.Encoder()
of_workers: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
"""Decodes messages of workers."""
of_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)
"""Decodes messages of the server."""
HIGH_WATER_PIECES = 64
"""Messages that may wait on one connection."""
_LARGE_BYTES = 64 << 10
TURN_BYTES = 2 * WINDOW_BYTES
"""After this number of bytes no further message is taken in the same turn."""


def encode(message: FromWorker | FromServer, *data: Frame) -> list[Frame]:
    """Return the frames to send; the bytes are not copied."""
    return [_OPENING, _encoder.encode(message), *data]


def decode(frames: Sequence[Frame], decoder: msgspec.msgpack.Decoder[_Any]) -> tuple[_Any, Sequence[Frame]]:
    """Return the message in these frames, and its frames with bytes, within the limits of the message's kind. Raises
    CodecError."""
    message = decode_header(frames, decoder, _OPENING, LIMITS.header_bytes)
    data = frames[2:]
    least, most, most_bytes = _data_of(message)
    if not least <= len(data) <= most:
        raise CodecError(f"{type(message).__name__} with {len(frames)} frames")
    size = sum(map(len, data))
    if data and not 0 < size <= most_bytes:
        raise CodecError(f"{type(message).__name__} with {size} bytes of a file; the most is {most_bytes}")
    return message, data


def _data_of(message: FromWorker | FromServer) -> tuple[int, int, int]:
    """Return the least and the most byte frames of a message, and the most bytes in these frames."""
    match message:
        case Put():
            return 0, WHOLE_PARTS, WHOLE_BYTES
        case Piece() | LogAppend():
            return 1, 1, PIECE_BYTES
        case _:
            return 0, 0, 0


class ReceivedMessage(Struct, frozen=True):
    """A message of a worker."""

    peer: bytes
    name: str
    """Name of the worker's key."""
    message: FromWorker
    data: Sequence[Frame]
    """The frames with the bytes of a file."""


class StreamRouter(RouterSocket):
    """The server's end."""

    def __init__(self, address: str, door: Door, listener: int | None = None) -> None:
        """See RouterSocket. New connections are answered in `wait`."""
        super().__init__(
            address, door, inbound=LIMITS, outbound=LIMITS, high_water=HIGH_WATER_PIECES, listener=listener
        )
        self._names: dict[bytes, str] = {}
        """Key names of peers by routing id."""

    def take(self) -> list[ReceivedMessage]:
        """Return messages of workers since the last call, up to TURN_BYTES. Counts and skips messages with other
        rights, and malformed messages."""
        found: list[ReceivedMessage] = []
        room = TURN_BYTES
        while room > 0 and (frames := self._receive()) is not None:
            peer, *rest = frames
            room -= sum(map(len, rest)) + 1_000
            who = self._who
            if who is None:
                continue  # a key that was revoked; it is counted already
            if who.right != "worker":
                self._door.refusals.note("forbidden", f"the key {who.name} is no worker's")
                continue
            try:
                message, data = decode(rest, of_workers)
            except CodecError:
                self.malformed += 1
                continue
            self._names[bytes(peer)] = who.name
            found.append(ReceivedMessage(bytes(peer), who.name, message, data))
        return found

    def hang_up(self, names: Collection[str]) -> None:
        """End the connections of keys with these names."""
        for peer in [peer for peer, name in self._names.items() if name in names]:
            self.connections.hang_up(peer)

    def forget_gone(self) -> None:
        """Forget the names of disconnected peers; called now and then."""
        self._names = {peer: name for peer, name in self._names.items() if self.connections.has(peer)}

    def _content(self, frame: zmq.Frame) -> Frame:
        """See the base: large frames are not copied."""
        return frame.bytes if len(frame) < _LARGE_BYTES else frame.buffer

    def say(self, peer: bytes, message: FromServer, *data: Frame) -> bool:
        """Send a message; False if the peer is unreachable or its queue is full."""
        return self._send_frames([peer], encode(message, *data))


class StreamDealer(DealerSocket):
    """A worker's end."""

    def __init__(self, address: str, keys: CallerKeys) -> None:
        """Connect in the background, with an identity of its own."""
        super().__init__(address, f"stream:{token_hex(12)}".encode(), keys, LIMITS, LIMITS, HIGH_WATER_PIECES)

    def take(self) -> tuple[FromServer, Frame] | None:
        """Return the next message of the server; None without a message. Counts and skips malformed messages."""
        while (frames := self._receive()) is not None:
            try:
                message, data = decode(frames, of_server)
                return message, data[0] if data else b""
            except CodecError:
                self.malformed += 1
        return None

    def _content(self, frame: zmq.Frame) -> Frame:
        """See the base: large frames are not copied."""
        return frame.bytes if len(frame) < _LARGE_BYTES else frame.buffer

    def say(self, message: FromWorker, *data: Frame) -> bool:
        """Send a message; False if the queue is full."""
        return self._send_frames([], encode(message, *data))
