"""A connection with too many waiting bytes is closed; all others are left alone, whoever had the descriptor before."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from remuda.wire import connections
from remuda.wire.connections import (
    FIRST_WORD_S,
    MOST_FOR_STRANGERS_BYTES,
    MOST_FOR_WORKERS_BYTES,
    MOST_OF_STRANGERS_BYTES,
    MOST_OF_WORKERS_BYTES,
    MOST_SILENT,
    Connections,
    TcpWire,
)


@dataclass
class Line(TcpWire):
    """A system in which each descriptor is what a test says."""

    far: dict[int, str] = field(default_factory=dict[int, str])
    acked: dict[int, int] = field(default_factory=dict[int, int])
    received: dict[int, int] = field(default_factory=dict[int, int])
    ended: list[int] = field(default_factory=list[int])

    def far_end(self, descriptor: int) -> object:
        return self.far.get(descriptor)

    def counts(self, descriptor: int) -> tuple[int, int] | None:
        return self.acked.get(descriptor, 0), self.received.get(descriptor, 0)

    def hang_up(self, descriptor: int) -> None:
        self.ended.append(descriptor)


def connected(*descriptors: int, worker: bytes = b"worker") -> tuple[Line, Connections]:
    line = Line({each: f"host:{each}" for each in descriptors})
    all_ = Connections(line, lambda peer: peer == worker)
    for each in descriptors:
        all_.made(each, 0.0)
    return line, all_


@pytest.mark.parametrize(
    ("peer", "most"),
    [(b"", MOST_OF_STRANGERS_BYTES), (b"x", MOST_OF_STRANGERS_BYTES), (b"worker", MOST_OF_WORKERS_BYTES)],
)
def test_what_came_and_is_not_taken_is_bounded_by_who_sent_it(peer: bytes, most: int) -> None:
    line, all_ = connected(3)
    if peer:
        all_.took(3, peer, 100)
    line.received[3] = most + (100 if peer else 0)
    all_.look(1.0)
    assert line.ended == []
    line.received[3] += 1
    all_.look(1.0)
    assert line.ended == [3]
    assert len(all_) == 0


@pytest.mark.parametrize(("peer", "most"), [(b"x", MOST_FOR_STRANGERS_BYTES), (b"worker", MOST_FOR_WORKERS_BYTES)])
def test_what_was_handed_over_and_is_not_read_is_bounded_by_who_is_told(peer: bytes, most: int) -> None:
    line, all_ = connected(3)
    all_.took(3, peer, 0)
    line.acked[3] = 1_000
    all_.handed(peer, most + 1_000)
    all_.handed(b"nobody", 10**12)
    all_.look(1.0)
    assert line.ended == []
    all_.handed(peer, 1)
    all_.look(1.0)
    assert line.ended == [3]


def test_who_says_nothing_is_forgotten_after_a_while() -> None:
    line, all_ = connected(3, 4)
    all_.took(4, b"x", 10)
    line.received[4] = 10
    all_.look(FIRST_WORD_S)
    assert line.ended == []
    all_.look(FIRST_WORD_S + 1.0)
    assert line.ended == [3]


def test_many_that_say_nothing_make_room_for_each_other_and_no_one_else_goes() -> None:
    line, all_ = connected(1, 2)
    all_.took(1, b"x", 0)
    all_.took(2, b"worker", 0)
    for descriptor in range(10, 10 + MOST_SILENT + 5):
        line.far[descriptor] = f"host:{descriptor}"
        all_.made(descriptor, 1.0)
    assert line.ended == [10, 11, 12, 13, 14]


def test_a_descriptor_that_is_another_s_by_now_is_left_alone() -> None:
    line, all_ = connected(3)
    line.received[3] = MOST_OF_STRANGERS_BYTES + 1
    line.far[3] = "somebody else"
    all_.look(1.0)
    assert line.ended == []
    assert all_.closed == 0


def test_a_connection_in_place_of_another_begins_anew() -> None:
    line, all_ = connected(3)
    all_.took(3, b"x", 500)
    all_.gone(3)
    line.far[3] = "another"
    all_.took(3, b"x", 200)  # of the one before, read late
    all_.made(3, 1.0)
    line.received[3] = MOST_OF_STRANGERS_BYTES
    all_.look(1.0)
    assert line.ended == []
    line.received[3] += MOST_OF_STRANGERS_BYTES
    all_.look(1.0)
    assert line.ended == [3]


def test_workers_are_looked_at_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WORKERS_LOOKED_AT", 10)
    line, all_ = connected(*range(1, 41))
    all_.is_worker = lambda peer: True
    for descriptor in range(1, 41):
        all_.took(descriptor, f"{descriptor}".encode(), 0)
    all_.look(0.0)
    line.received = dict.fromkeys(range(1, 41), MOST_OF_WORKERS_BYTES + 1)
    for turn in range(1, 5):
        all_.look(0.0)
        assert len(line.ended) == 10 * turn
    assert sorted(line.ended) == list(range(1, 41))
