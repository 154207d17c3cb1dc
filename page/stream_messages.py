"""What the event stream says: one struct for each kind of message, and how a message is written."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from remuda.page.coordinator_link import Presence
from remuda.page.herd import CoordinatorView, HostView, WorkerView
from remuda.page.run_rows import RunRow
from remuda.page.views import SweepView
from remuda.page.waiting import Queue


class Message(Struct, frozen=True):
    """One message of the stream."""

    id: str
    event: str
    data: object

    def encoded(self) -> bytes:
        """As `text/event-stream` has it. JSON holds no end of a line."""
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (
            self.id.encode(),
            self.event.encode(),
            msgspec.json.encode(self.data),
        )


class HerdNews(Struct, frozen=True):
    """The herd, or what has changed in it."""

    all: bool
    coordinator: CoordinatorView
    hosts: list[HostView]
    workers: list[WorkerView]
    gone: list[str]


class RunsNews(Struct, frozen=True):
    """All runs, or those that have changed."""

    all: bool
    runs: list[RunRow]
    gone: list[str]
    complete: bool
    """Whether there are no other runs."""
    sweeps: list[SweepView]


class LogLines(Struct, frozen=True):
    """New lines of a log."""

    file: str
    inode: int
    begin: int
    end: int
    text: str
    reset: bool
    """The file was replaced: forget its former lines."""


class OfRun(Struct, frozen=True):
    """Something of this run has changed: ask again."""

    run: str


class PresenceNews(Struct, frozen=True):
    """The coordinator came or went."""

    coordinator: Presence
    since_s: float | None


def without_time(queue: Queue) -> Queue:
    """The queue, whose numbers of seconds always grow, for a comparison."""
    return Queue([structs.replace(each, wall_s=0.0) for each in queue.experiments], queue.free)


def batch(messages: Sequence[Message]) -> bytes:
    """All of them as bytes."""
    return b"".join(message.encoded() for message in messages)
