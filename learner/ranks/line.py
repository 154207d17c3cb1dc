"""A line between rank 0 and another rank: messages in order, with a deadline for each."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from remuda.policy.ranks import RankLostError

HEADER = struct.Struct("<BQ")
"""Before each message: its kind, and the bytes of its body."""
LARGEST_MESSAGE_BYTES = 1 << 34
"""A message that says it is longer is none."""

Part = bytes | memoryview
Body = NDArray[np.uint8]


class Message(IntEnum):
    """What ranks send each other."""

    HELLO = 0
    """To rank 0: it is there, and works for no lease. The first message, and the one after each lease."""
    BEGIN = 1
    """From rank 0: the config of a lease, and the state that all ranks begin with."""
    READY = 2
    """The answer: it has the algorithm, and learns from now on."""
    BATCH = 3
    """From rank 0: a part of a batch."""
    NUMBERS = 4
    """To rank 0: what is to be added. The answer: the sum over all ranks."""
    RESULT = 5
    """The answer to a part of a batch: what was learned from it."""
    WAIT = 6
    """From rank 0: it is there, and has no batch."""
    END = 7
    """From rank 0: the lease is over. It may come at any time."""
    FAILED = 8
    """To rank 0: what was raised, as text. The lease is over for this rank."""
    LEAVE = 9
    """From rank 0: no lease will come any more."""
    ADJUST = 10
    """From rank 0: settings that have these values from the next batch on."""


class LeaseOverError(Exception):
    """Rank 0 has ended the lease."""


class RankFailedError(RankLostError):
    """What the algorithm, or its environment, raised in another rank, which is free for the next lease."""


class Line(ABC):
    """One end of a line. For one thread only."""

    def __init__(self, far_end: str, timeout_s: float) -> None:
        """`far_end` names the rank at the other end, for people."""
        self.far_end = far_end
        self.timeout_s = timeout_s
        """How long the other end may be silent, in seconds, where a call does not say otherwise (`limits.rank_s`)."""

    def send(self, kind: Message, *parts: Part, timeout_s: float | None = None) -> None:
        """Send a message; its body is all parts, one after the other. Raises RankLostError."""
        size = sum(len(part) for part in parts)
        self._write([HEADER.pack(kind, size), *parts], self.timeout_s if timeout_s is None else timeout_s)

    def receive(self, timeout_s: float | None = None) -> tuple[Message, Body]:
        """Wait for the next message: its kind and its body.

        Raises RankLostError, also if the other rank has failed, and LeaseOverError."""
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        kind, size = self._next(wait_s)
        return kind, self._body(size, wait_s)

    def expect(self, expected: Message, timeout_s: float | None = None) -> Body:
        """The body of the next message, which must be of this kind. Raises what `receive` raises."""
        kind, body = self.receive(timeout_s)
        if kind != expected:
            raise self._out_of_step(kind, expected)
        return body

    def receive_into(self, expected: Message, array: NDArray[np.generic]) -> None:
        """Fill `array`, which must be contiguous, with the body of the next message, which must be of this kind and
        size. Raises what `receive` raises."""
        kind, size = self._next(self.timeout_s)
        if kind != expected:
            raise self._out_of_step(kind, expected)
        if size != array.nbytes:
            raise RankLostError(
                f"{self.far_end} sent {size} bytes of numbers, and {array.nbytes} were expected: `learn` must average "
                "tensors of the same shapes in all ranks"
            )
        self._fill(array.data.cast("B"), self.timeout_s)

    def skip_to(self, *expected: Message, timeout_s: float | None) -> tuple[Message, Body]:
        """The next message of one of these kinds; those before it are about a lease that is over. With None it waits as
        long as the line holds. Raises RankLostError."""
        while True:
            kind, size = self._header(timeout_s)
            body = self._body(size, timeout_s)
            if kind in expected:
                return kind, body

    @abstractmethod
    def close(self) -> None:
        """Close this end; may be called again."""

    # --- what each kind of line does in its own way; all raise RankLostError ---

    @abstractmethod
    def _write(self, parts: Sequence[Part], timeout_s: float) -> None:
        """Send these bytes as one message."""

    @abstractmethod
    def _begin(self, timeout_s: float | None) -> bytes:
        """Wait for the next message, and return its header."""

    @abstractmethod
    def _fill(self, view: memoryview, timeout_s: float | None) -> None:
        """Fill `view`, which is not empty, with the next bytes of the message that was begun."""

    # --- inside ---

    def _next(self, timeout_s: float) -> tuple[Message, int]:
        """The header of the next message. Raises what `receive` raises."""
        kind, size = self._header(timeout_s)
        if kind == Message.END:
            raise LeaseOverError
        if kind == Message.FAILED:
            text = self._body(size, timeout_s).tobytes().decode(errors="replace")
            raise RankFailedError(f"{self.far_end} ended by an error: {text}")
        return kind, size

    def _header(self, timeout_s: float | None) -> tuple[Message, int]:
        kind, size = HEADER.unpack(self._begin(timeout_s))
        if kind not in _KINDS or size > LARGEST_MESSAGE_BYTES:
            raise RankLostError(f"{self.far_end} sent a message of kind {kind} with {size} bytes, which is none")
        return _KINDS[kind], size

    def _body(self, size: int, timeout_s: float | None) -> Body:
        body: Body = np.empty(size, np.uint8)
        if size:
            self._fill(body.data, timeout_s)
        return body

    def _out_of_step(self, kind: Message, expected: Message) -> RankLostError:
        return RankLostError(
            f"{self.far_end} sent {kind.name} where {expected.name} was expected: `learn` must make the same calls in "
            "all ranks"
        )

    def _silent(self, timeout_s: float | None) -> RankLostError:
        limit = "limits.rank_s" if timeout_s == self.timeout_s else "limits.prepare_s"
        return RankLostError(f"{self.far_end} did not answer within {timeout_s or 0:g} s ({limit})")

    def _gone(self) -> RankLostError:
        return RankLostError(f"{self.far_end} has ended, or its connection is broken")


_KINDS = {int(kind): kind for kind in Message}
