"""The bytes of a TensorBoard event file: framed records, each an Event message of tensorboardX.

Messages and checksums are tensorboardX's; the file is ours, see curve_file: tensorboardX's own writer queues through a
thread that on a full disk dies unseen and then blocks its callers, and it cannot take anything back.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from remuda.logbook.event_messages import EventMessage, Summaries, event_messages

_BYTES = 2
_NO_FIELD = 15
_HEADER_BYTES, _CRC_BYTES = 12, 4
_LONGEST_LEAD_BYTES = 64
"""What may stand in a record before a note's text: its header, the time, a step, a level, lengths."""
_SMALL_BYTES = 4 << 10


@dataclass(frozen=True)
class Frame:
    """A record as it lies in a file."""

    begin: int
    end: int
    intact: bool
    """Its checksum fits, or was not looked at."""
    step: int
    tag: str
    """Of the first that it shows, else nothing."""
    note: str
    """The text of a `note_event`, else nothing."""


def version_event(wall_time_s: float) -> bytes:
    """Frame the event that must open a file."""
    return _frame(event_messages().event(wall_time=wall_time_s, file_version="brain.Event:2"))


def restart_event(wall_time_s: float) -> bytes:
    """Frame the event that tells a reader to forget all it has read of this folder: a session starts at step 0."""
    messages = event_messages()
    return _frame(messages.event(wall_time=wall_time_s, session_log=messages.session_start))


def note_event(wall_time_s: float, text: str) -> bytes:
    """Frame an event that readers of curves pass over: a log message."""
    return _frame(event_messages().event(wall_time=wall_time_s, log_message={"message": text}))


def scalar_event(wall_time_s: float, step: int, scalars: Mapping[str, float]) -> bytes:
    """Frame one event with all these scalars, finite in float32, at `step` (not negative)."""
    values = [{"tag": tag, "simple_value": value} for tag, value in scalars.items()]
    return _frame(event_messages().event(wall_time=wall_time_s, step=step, summary={"value": values}))


def summary_event(wall_time_s: float, step: int, summary: Summaries) -> bytes:
    """Frame one event with what tensorboardX made for one of TensorBoard's other pages."""
    return _frame(event_messages().event(wall_time=wall_time_s, step=step, summary=summary))


def blank_frame(frame_bytes: int) -> bytes:
    """Frame an event of this size that says nothing, to be written over another one."""
    return _small_blank_frame(frame_bytes) if frame_bytes <= _SMALL_BYTES else _blank_frame(frame_bytes)


@functools.lru_cache(maxsize=1024)
def _small_blank_frame(frame_bytes: int) -> bytes:
    """Curves have many events of few sizes; a film is kept in no cache."""
    return _blank_frame(frame_bytes)


def _blank_frame(frame_bytes: int) -> bytes:
    filler = max(frame_bytes - _HEADER_BYTES - _CRC_BYTES - 5, 0)
    # A field that events do not have, its length in four bytes whatever it is: protobuf itself always takes as few as
    # the length needs, and so could not fill every size.
    length = bytes((filler & 0x7F | 0x80, filler >> 7 & 0x7F | 0x80, filler >> 14 & 0x7F | 0x80, filler >> 21 & 0x7F))
    return _framed(bytes((_NO_FIELD << 3 | _BYTES,)) + length + bytes(filler))


def read_frames(data: bytes, begin: int = 0, *, checked: bool) -> Iterator[Frame]:
    """Yield the records from `begin` up to the end, or to the first that is torn off or has a damaged header.

    `checked`: whether checksums of what records hold are compared, which takes half a second per megabyte.
    """
    while begin + _HEADER_BYTES <= len(data):
        header = data[begin : begin + 8]
        body = begin + _HEADER_BYTES
        end = body + int.from_bytes(header, "little") + _CRC_BYTES
        if end > len(data) or _mask(header) != data[begin + 8 : body]:
            return
        content = data[body : end - _CRC_BYTES]
        intact = not checked or _mask(content) == data[end - _CRC_BYTES : end]
        event = event_messages().parsed(content) if intact else None
        if event is None:
            yield Frame(begin, end, False, 0, "", "")
        else:
            values = event.summary.value
            yield Frame(begin, end, True, event.step, values[0].tag if values else "", event.log_message.message)
        begin = end


def frame_around(data: bytes, position: int) -> Frame | None:
    """Find the intact record that holds this position near its beginning (as text in a note_event is)."""
    for begin in range(position - _HEADER_BYTES, max(position - _LONGEST_LEAD_BYTES, 0) - 1, -1):
        header = data[begin : begin + 8]
        if begin >= 0 and header[4:] == bytes(4) and _mask(header) == data[begin + 8 : begin + _HEADER_BYTES]:
            frame = next(read_frames(data, begin, checked=True), None)
            return frame if frame is not None and frame.intact else None
    return None


def _frame(event: EventMessage) -> bytes:
    return _framed(event.SerializeToString())


def _framed(content: bytes) -> bytes:
    header = struct.pack("<Q", len(content))
    return header + _mask(header) + content + _mask(content)


def _mask(data: bytes) -> bytes:
    """CRC-32C (Castagnoli), rotated and offset as record files have it, so that a checksum of checksums differs."""
    return struct.pack("<I", event_messages().checksum(data))
