"""The bytes of a TensorBoard event file: framed records, each an Event message of tensorboardX.

Messages and checksums are those of tensorboardX, but not the writer. Its `purge_step` knows one axis: a run resumed at
update 4,000 of 5,000 kept 401 of 4,001 points over env_step. Its thread dies silently on a full disk, and then blocks
the callers. It writes an event for each scalar: a row of 20 values took 17 times the processor time.

Importing tensorboardX also imports torch, if installed, which takes seconds and much memory. So the import hides torch.
It happens at the first use, since few processes write curves.
"""

from __future__ import annotations

import functools
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from remuda.wire.messages import Film, Histogram

_BYTES = 2
_NO_FIELD = 15
_HEADER_BYTES, _CRC_BYTES = 12, 4
_LONGEST_LEAD_BYTES = 64
"""Most bytes in a record before the text of a note: header, time, step, level, lengths."""
_SMALL_BYTES = 4 << 10
_loading = threading.Lock()


@functools.cache
def tensorboardx() -> Any:
    """Loads the used parts of tensorboardX, once. Raises ImportError."""
    with _loading:
        hidden = "torch" not in sys.modules
        if hidden:
            sys.modules["torch"] = cast("ModuleType", None)  # an import of torch fails at once
        try:
            return SimpleNamespace(
                events=import_module("tensorboardX.proto.event_pb2"),
                checksum=import_module("tensorboardX.record_writer").masked_crc32c,
                summaries=import_module("tensorboardX.summary"),
                malformed=import_module("google.protobuf.message").DecodeError,
            )
        finally:
            if hidden:
                del sys.modules["torch"]


@dataclass(frozen=True)
class Frame:
    """Position and content of a record in a file."""

    begin: int
    end: int
    intact: bool
    """True if the checksum fits or was not compared."""
    step: int
    tag: str
    """Tag of the first value; empty without values."""
    note: str
    """The text of a `note_event`, else nothing."""


def version_event(wall_time_s: float) -> bytes:
    """Frames the first event of a file."""
    return _event(wall_time=wall_time_s, file_version="brain.Event:2")


def restart_event(wall_time_s: float) -> bytes:
    """Frames an event after which readers forget the former events of the folder: a session starts at step 0."""
    log = tensorboardx().events.SessionLog
    return _event(wall_time=wall_time_s, session_log=log(status=log.START))


def note_event(wall_time_s: float, text: str) -> bytes:
    """Frames a log message, an event that readers of curves skip."""
    return _event(wall_time=wall_time_s, log_message={"message": text})


def scalar_event(wall_time_s: float, step: int, scalars: Mapping[str, float]) -> bytes:
    """Frames one event with these scalars, finite in float32, at `step` (not negative)."""
    values = [{"tag": tag, "simple_value": value} for tag, value in scalars.items()]
    return _event(wall_time=wall_time_s, step=step, summary={"value": values})


def text_event(wall_time_s: float, step: int, tag: str, markdown: str) -> bytes:
    """Frames a text for the page of texts."""
    return _event(wall_time=wall_time_s, step=step, summary=tensorboardx().summaries.text(tag, markdown))


def hparams_events(
    wall_time_s: float, step: int, settings: Mapping[str, object], results: Mapping[str, float]
) -> bytes:
    """Frames the events for the page of hyperparameters: the experiment, and the begin and end of its session."""
    made = tensorboardx().summaries.hparams(settings, results)
    return b"".join(_event(wall_time=wall_time_s, step=step, summary=summary) for summary in made)


def histogram_event(wall_time_s: float, step: int, tag: str, histogram: Histogram) -> bytes:
    """Frames a histogram whose outer buckets are not empty. TensorBoard uses `min` and `max` as the outer edges."""
    summary = tensorboardx().summaries.histogram_raw(
        tag,
        min=histogram.left,
        max=histogram.rights[-1] if histogram.rights else histogram.left,
        num=sum(histogram.counts),
        sum=histogram.total,
        sum_squares=histogram.total_squares,
        bucket_limits=histogram.rights,
        bucket_counts=histogram.counts,
    )
    return _event(wall_time=wall_time_s, step=step, summary=summary)


def film_event(wall_time_s: float, step: int, tag: str, film: Film) -> bytes:
    """Frames an animated GIF, like tensorboardX's `video`, which needs moviepy."""
    image = {"height": film.height, "width": film.width, "colorspace": 3, "encoded_image_string": film.gif}
    return _event(wall_time=wall_time_s, step=step, summary={"value": [{"tag": tag, "image": image}]})


def film_in(content: bytes) -> tuple[int, bytes] | None:
    """Returns step and GIF of the first value of an unframed event; None for malformed content."""
    event = _parsed(content)
    return (
        None
        if event is None
        else (int(event.step), event.summary.value[0].image.encoded_image_string if event.summary.value else b"")
    )


def blank_frame(frame_bytes: int) -> bytes:
    """Frames an empty event of this size, to overwrite another event."""
    return _small_blank_frame(frame_bytes) if frame_bytes <= _SMALL_BYTES else _blank_frame(frame_bytes)


@functools.lru_cache(maxsize=1024)
def _small_blank_frame(frame_bytes: int) -> bytes:
    """Curves have many events of few sizes; a film is kept in no cache."""
    return _blank_frame(frame_bytes)


def _blank_frame(frame_bytes: int) -> bytes:
    filler = max(frame_bytes - _HEADER_BYTES - _CRC_BYTES - 5, 0)
    # An unknown field whose length always takes four bytes: the shortest form of protobuf could not fill every size.
    length = bytes((filler & 0x7F | 0x80, filler >> 7 & 0x7F | 0x80, filler >> 14 & 0x7F | 0x80, filler >> 21 & 0x7F))
    return _framed(bytes((_NO_FIELD << 3 | _BYTES,)) + length + bytes(filler))


def read_frames(data: bytes, begin: int = 0, *, checked: bool) -> Iterator[Frame]:
    """Yields the records from `begin` up to the end, to a torn record, or to a damaged header.

    `checked` compares the checksums of contents, which takes half a second per megabyte.
    """
    while begin + _HEADER_BYTES <= len(data):
        header = data[begin : begin + 8]
        body = begin + _HEADER_BYTES
        end = body + int.from_bytes(header, "little") + _CRC_BYTES
        if end > len(data) or _mask(header) != data[begin + 8 : body]:
            return
        content = data[body : end - _CRC_BYTES]
        intact = not checked or _mask(content) == data[end - _CRC_BYTES : end]
        event = _parsed(content) if intact else None
        if event is None:
            yield Frame(begin, end, False, 0, "", "")
        else:
            values = event.summary.value
            yield Frame(begin, end, True, event.step, values[0].tag if values else "", event.log_message.message)
        begin = end


def frame_around(data: bytes, position: int) -> Frame | None:
    """Returns the intact record with this position near its beginning (like the text of a note_event)."""
    for begin in range(position - _HEADER_BYTES, max(position - _LONGEST_LEAD_BYTES, 0) - 1, -1):
        header = data[begin : begin + 8]
        if begin >= 0 and header[4:] == bytes(4) and _mask(header) == data[begin + 8 : begin + _HEADER_BYTES]:
            frame = next(read_frames(data, begin, checked=True), None)
            return frame if frame is not None and frame.intact else None
    return None


def _parsed(content: bytes) -> Any:
    """Returns the Event message, or None for malformed content."""
    try:
        return tensorboardx().events.Event.FromString(content)
    except tensorboardx().malformed:
        return None


def _event(**fields: object) -> bytes:
    """Frames an Event message with these fields."""
    return _framed(tensorboardx().events.Event(**fields).SerializeToString())


def _framed(content: bytes) -> bytes:
    header = struct.pack("<Q", len(content))
    return header + _mask(header) + content + _mask(content)


def _mask(data: bytes) -> bytes:
    """Returns the CRC-32C (Castagnoli), rotated and offset, to distinguish a checksum of checksums."""
    return struct.pack("<I", tensorboardx().checksum(data))
