"""What is used of tensorboardX, typed, and loaded without torch: at the first use, as few processes write curves.

Importing tensorboardX imports torch where it can, which takes seconds and much memory: nothing for the coordinator.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast

from remuda.wire.messages import Film, Histogram


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
