"""What goes over a line arrives whole and in order, and no wait outlasts its deadline: on one host and between two."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager

import numpy as np
import pytest

from remuda.learner.ranks.joining import RankConnection
from remuda.learner.ranks.line import HEADER, LeaseOverError, Line, Message
from remuda.learner.ranks.network_line import PIECE_BYTES, pieces
from remuda.learner.ranks.server import RankServer
from remuda.policy.ranks import RankLostError
from remuda.tests.learner.ranks.network import PAIR, recruited
from remuda.tests.learner.ranks.threads import local_lines
from remuda.tests.patience import HANG_S

Lines = Callable[[], AbstractContextManager[tuple[Line, Line]]]


@contextmanager
def network_lines() -> Generator[tuple[Line, Line]]:
    """As `local_lines`, over TCP."""
    with closing(RankServer("tcp://127.0.0.1:0", PAIR, 2, timeout_s=HANG_S)) as server:
        connection = RankConnection(f"tcp://127.0.0.1:{server.port}", PAIR)
        with closing(connection):
            of_1 = connection.line(HANG_S)
            (of_0,) = recruited(server, {1: of_1})
            yield of_0, of_1


@pytest.fixture(params=[local_lines, network_lines], ids=["local", "network"])
def lines(request: pytest.FixtureRequest) -> Iterator[tuple[Line, Line]]:
    """Rank 0's end, and that of rank 1."""
    make: Lines = request.param
    with make() as ends:
        yield ends


def test_messages_arrive_whole_and_in_order(lines: tuple[Line, Line]) -> None:
    of_0, of_1 = lines
    body = np.random.default_rng(0).bytes(3 * PIECE_BYTES + 7)
    with ThreadPoolExecutor(1) as other:
        sent = other.submit(of_0.send, Message.BATCH, body[:11], body[11:])
        kind, found = of_1.receive()
        assert (kind, found.tobytes()) == (Message.BATCH, body)
        sent.result()
    of_0.send(Message.WAIT)
    assert of_1.receive()[0] == Message.WAIT
    of_1.send(Message.RESULT)
    assert of_0.expect(Message.RESULT).size == 0


def test_numbers_arrive_in_the_array_that_waits_for_them(lines: tuple[Line, Line]) -> None:
    of_0, of_1 = lines
    of_1.send(Message.NUMBERS, np.array([1.5, 2.5]).data.cast("B"))
    found = np.zeros(2)
    of_0.receive_into(Message.NUMBERS, found)
    assert found.tolist() == [1.5, 2.5]


def test_ranks_that_are_out_of_step_are_told_apart(lines: tuple[Line, Line]) -> None:
    of_0, of_1 = lines
    of_1.send(Message.RESULT, b"1")
    with pytest.raises(
        RankLostError, match=r"learner rank 1.* sent RESULT where NUMBERS was expected: `learn` must make"
    ):
        of_0.receive_into(Message.NUMBERS, np.zeros(1))


def test_numbers_of_other_shapes_are_refused(lines: tuple[Line, Line]) -> None:
    of_0, of_1 = lines
    of_1.send(Message.NUMBERS, bytes(8))
    with pytest.raises(RankLostError, match="sent 8 bytes of numbers, and 16 were expected"):
        of_0.receive_into(Message.NUMBERS, np.zeros(2))


def test_what_a_rank_has_raised_is_told_wherever_something_else_is_expected(lines: tuple[Line, Line]) -> None:
    of_0, of_1 = lines
    waits: list[Callable[[], object]] = [
        lambda: of_0.receive_into(Message.NUMBERS, np.zeros(1)),
        lambda: of_0.expect(Message.RESULT),
    ]
    for wait in waits:
        of_1.send(Message.FAILED, b"ValueError: the horse is lame")
        with pytest.raises(RankLostError, match=r"^learner rank 1.* ended by an error: ValueError: the horse is lame$"):
            wait()


def test_the_end_of_a_lease_comes_at_any_time_and_what_is_left_of_it_is_skipped(lines: tuple[Line, Line]) -> None:
    of_0, of_1 = lines
    of_0.send(Message.END)
    with pytest.raises(LeaseOverError):
        of_1.receive_into(Message.NUMBERS, np.zeros(1))
    of_1.send(Message.NUMBERS, bytes(4))
    of_1.send(Message.FAILED, b"of the lease before")
    of_1.send(Message.HELLO, b"again")
    kind, body = of_0.skip_to(Message.BEGIN, Message.HELLO, timeout_s=HANG_S)
    assert (kind, body.tobytes()) == (Message.HELLO, b"again")


def test_silence_ends_with_the_deadline(lines: tuple[Line, Line]) -> None:
    of_0, _ = lines
    of_0.timeout_s = 0.1
    with pytest.raises(RankLostError, match=r"learner rank 1.* did not answer within 0.1 s \(limits.rank_s\)"):
        of_0.receive()
    with pytest.raises(RankLostError, match=r"did not answer within 0.2 s \(limits.prepare_s\)"):
        of_0.skip_to(Message.HELLO, timeout_s=0.2)


def test_the_end_of_the_other_rank_is_noticed_at_once() -> None:
    with local_lines() as (of_0, of_1):
        assert not of_0.is_broken()
        of_1.close()
        assert of_0.is_broken()
        of_0.wait_until_broken()
        with pytest.raises(RankLostError, match="learner rank 1 has ended, or its connection is broken"):
            of_0.receive()
        with pytest.raises(RankLostError, match="has ended"):
            of_0.send(Message.WAIT)


def test_nonsense_is_no_message() -> None:
    with local_lines() as (of_0, of_1):
        of_1._write([HEADER.pack(77, 0)], HANG_S)
        with pytest.raises(RankLostError, match="a message of kind 77 with 0 bytes, which is none"):
            of_0.receive()
        of_1._write([HEADER.pack(Message.BATCH, 1 << 60)], HANG_S)
        with pytest.raises(RankLostError, match="which is none"):
            of_0.receive()


def test_a_network_message_that_is_not_whole_is_none() -> None:
    with network_lines() as (of_0, of_1):
        of_1._write([HEADER.pack(Message.RESULT, 5), b"four"], HANG_S)
        with pytest.raises(RankLostError, match="a message that is not whole"):
            of_0.receive()


def test_long_bodies_travel_in_pieces() -> None:
    body = bytes(2 * PIECE_BYTES + 1)
    assert [len(piece) for piece in pieces([b"header", b"", body])] == [6, PIECE_BYTES, PIECE_BYTES, 1]
