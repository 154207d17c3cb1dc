"""Messages between a worker without the runs folder and the stream server with the folder."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remuda.wire.messages import Count, FileName, Grant, PolicyRef, ShortText

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
