"""The bytes of a TensorBoard event file: framed records, each an Event message of tensorboardX."""

from __future__ import annotations

import functools
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast

from remuda.wire.messages import Film, Histogram

_BYTES = 2
_NO_FIELD = 15
_HEADER_BYTES, _CRC_BYTES = 12, 4
_LONGEST_LEAD_BYTES = 64
"""What may stand in a record before a note's text: its header, the time, a step, a level, lengths."""
_SMALL_BYTES = 4 << 10


class _Image(Protocol):
    @property
    def encoded_image_string(self) -> bytes: ...


class _Value(Protocol):
    @property
    def tag(self) -> str: ...

    @property
    def image(self) -> _Image: ...


class Summaries(Protocol):
    """A Summary message: what is shown at one step."""

    @property
    def value(self) -> Sequence[_Value]: ...


class _LogMessage(Protocol):
    @property
    def message(self) -> str: ...


class EventMessage(Protocol):
    """An Event message."""

    @property
    def step(self) -> int: ...

    @property
    def summary(self) -> Summaries: ...

    @property
    def log_message(self) -> _LogMessage: ...

    def SerializeToString(self) -> bytes: ...  # noqa: N802 - protobuf's name


@dataclass(frozen=True)
class EventMessages:
    """Makes and reads Event messages, and what TensorBoard's pages show."""

    event: Callable[..., EventMessage]
    """Takes the fields by name."""
    session_start: object
    """The session_log of an event that begins a session."""
    checksum: Callable[[bytes], int]
    """Of a record's header or content, as record files have it."""
    text: Callable[[str, str], Summaries]
    """Of a tag and Markdown."""
    hparams: Callable[[Mapping[str, object], Mapping[str, float]], tuple[Summaries, Summaries, Summaries]]
    """Of hyperparameters and results by tag: the experiment, the session's beginning, its end."""
    histogram: Callable[[str, Histogram], Summaries]
    """Of a tag and buckets, of which the outer ones are not empty."""
    image: Callable[[str, Film], Summaries]
    """Of a tag and an animated GIF."""
    parse: Callable[[bytes], EventMessage]
    malformed: type[Exception]

    def parsed(self, content: bytes) -> EventMessage | None:
        """The message with this content; None where it is none."""
        try:
            return self.parse(content)
        except self.malformed:
            return None


_loading = threading.Lock()


@functools.cache
def event_messages() -> EventMessages:
    """Load tensorboardX, once. Raises ImportError."""
    with _loading, _WithoutTorch():
        events: Any = import_module("tensorboardX.proto.event_pb2")
        records: Any = import_module("tensorboardX.record_writer")
        summaries: Any = import_module("tensorboardX.summary")
        protobuf: Any = import_module("google.protobuf.message")
    log = events.SessionLog
    return EventMessages(
        event=events.Event,
        session_start=log(status=log.START),
        checksum=records.masked_crc32c,
        text=summaries.text,
        hparams=summaries.hparams,
        histogram=lambda tag, histogram: _histogram(summaries, tag, histogram),
        image=lambda tag, film: _image(summaries, tag, film),
        parse=events.Event.FromString,
        malformed=protobuf.DecodeError,
    )


def _histogram(summaries: Any, tag: str, histogram: Histogram) -> Summaries:
    """TensorBoard takes the least and the largest value for the outer edges of the buckets, so they are these edges."""
    summary: Summaries = summaries.histogram_raw(
        tag,
        min=histogram.left,
        max=histogram.rights[-1] if histogram.rights else histogram.left,
        num=sum(histogram.counts),
        sum=histogram.total,
        sum_squares=histogram.total_squares,
        bucket_limits=histogram.rights,
        bucket_counts=histogram.counts,
    )
    return summary


def _image(summaries: Any, tag: str, film: Film) -> Summaries:
    """As tensorboardX's own `video`, which needs moviepy to make the GIF."""
    message = summaries.Summary
    image = message.Image(height=film.height, width=film.width, colorspace=3, encoded_image_string=film.gif)
    summary: Summaries = message(value=[message.Value(tag=tag, image=image)])
    return summary


class _WithoutTorch:
    """While the body runs torch cannot be imported, unless it is loaded already."""

    def __enter__(self) -> None:
        self._hidden = "torch" not in sys.modules
        if self._hidden:
            sys.modules["torch"] = cast("ModuleType", None)  # an import of it fails at once

    def __exit__(self, *_: object) -> None:
        if self._hidden:
            del sys.modules["torch"]


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
