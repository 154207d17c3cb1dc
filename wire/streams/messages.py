"""Messages between a worker that does not see the runs folder and the stream server, which does."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remuda.wire.messages import Count, FileName, Grant, PolicyRef, ShortText

PIECE_BYTES = 512 << 10
"""The most bytes of a file in one frame."""
WHOLE_BYTES = 2 << 20
"""A file of at most so many bytes is brought whole, in one message."""
WHOLE_PARTS = 16
"""The most frames with bytes in such a message."""
WINDOW_BYTES = 4 << 20
"""The most bytes of a file that may be on their way: sent, and not confirmed by the other end."""
MOST_FILE_BYTES = 4 << 30
"""The most bytes of one file."""

FileBytes = Annotated[int, Meta(ge=0, le=MOST_FILE_BYTES)]
PutKind = Literal["chunk", "reanalysis", "description"]
"""What workers bring: payloads, reanalyses, and env_spec.json."""
GetKind = Literal["policy", "target", "checkpoint", "chunk", "reanalysis"]
"""What workers fetch: the policy file and that of the target network, checkpoints and payloads."""


class StreamMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of every message: immutable, tagged with its class name, without unknown fields."""


# --- both ways ---


class Piece(StreamMessage, frozen=True):
    """Some bytes of a file; they are the frame after the message."""

    transfer: Count
    offset: FileBytes
    """The place of the first of them in the file."""


# --- of workers ---


class Put(StreamMessage, frozen=True):
    """A file is to be put into the run folder. Answered by Begin, Stored or Refused; said again after a break.

    The bytes of a short file are the frames after the message. Those of a longer one follow in pieces after Begin."""

    transfer: Count
    """The worker's number for it; counts up from 1 in each process."""
    grant: Grant
    kind: PutKind
    file: FileName
    size_bytes: FileBytes


class Get(StreamMessage, frozen=True):
    """A file is to be fetched. Answered by Opened, NothingNewer or Refused; said again after a break."""

    transfer: Count
    grant: Grant
    kind: GetKind
    file: FileName
    offset: FileBytes = 0
    """Bytes below this are there already."""
    newer_than: PolicyRef | None = None
    """A policy that is not newer (by epoch, then version) is not wanted."""


class Took(StreamMessage, frozen=True):
    """All bytes of a fetched file below `below` have arrived."""

    transfer: Count
    below: FileBytes


class Cancel(StreamMessage, frozen=True):
    """The transfer is not needed any more. Not answered."""

    transfer: Count


class LogAppend(StreamMessage, frozen=True):
    """The next bytes of this worker's log; they are the frame after the message. Answered by LogHas or Refused."""

    transfer: Count
    """The worker's number for this log."""
    grant: Grant
    offset: FileBytes


# --- of the server ---


class Begin(StreamMessage, frozen=True):
    """The file may be sent; bytes below `offset` are there already."""

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
    """The file is there, and has so many bytes. Its pieces follow."""

    transfer: Count
    size_bytes: FileBytes


class NothingNewer(StreamMessage, frozen=True):
    """The published policy is not newer than the one that the worker has."""

    transfer: Count


class LogHas(StreamMessage, frozen=True):
    """The log in the run folder has so many bytes."""

    transfer: Count
    size_bytes: Count


class Refused(StreamMessage, frozen=True):
    """It is not done. The transfer is over for the server."""

    transfer: Count
    reason: ShortText
    again: bool
    """It may be tried again: the disk is full, there is much to do, or the server was started again."""
    missing: bool = False
    """There is no such file."""
    no_room: bool = False
    """The disk of the run has no room for it."""


FromWorker = Put | Get | Piece | Took | Cancel | LogAppend
FromServer = Begin | Written | Stored | Opened | NothingNewer | Piece | LogHas | Refused
