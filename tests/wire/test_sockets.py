"""Sockets: envelopes between real ones; garbage, vanished peers and full queues are events, not errors."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Generator
from contextlib import closing

import numpy as np
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from remuda.tests.ipv6 import needs_ipv6
from remuda.tests.keys import WORKER as BY_WORKER
from remuda.tests.keys import caller, connection_to, raw_dealer
from remuda.tests.keys import dealer as open_dealer
from remuda.tests.keys import router as open_router
from remuda.tests.patience import HANG_S
from remuda.wire import connections, sockets
from remuda.wire import router as router_module
from remuda.wire.codec import OF_STRANGERS, Envelope, ProtocolMismatchError, TooEarlyError, TooLargeError, encode
from remuda.wire.messages import PROTOCOL_VERSION, Ack, AnyMessage, BatchRequest, Leave, Ready, Rejected
from remuda.wire.router import RouterSocket
from remuda.wire.sockets import Arrival, DealerSocket, Malformed, show_keys, worker_identity

TURN_S = 0.05
UUID = "01234567-89ab-cdef-0123-456789abcdef"
WORKER = worker_identity(UUID, 2, "test", 0)


def wrap(message: AnyMessage) -> Envelope:
    return Envelope(1, 0, 1, message)


def next_of(end: RouterSocket | DealerSocket) -> Arrival | Malformed:
    for _ in range(int(HANG_S / TURN_S)):
        event = end.receive() if isinstance(end, DealerSocket) else next(iter(end.receive_up_to(1)), None)
        if event is not None:
            return event
        end.wait(TURN_S)
    raise AssertionError("nothing came")


@pytest.fixture
def router() -> Generator[RouterSocket, None, None]:
    with closing(open_router()) as router:
        yield router


@pytest.fixture(autouse=True)
def always_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "LOOK_INTERVAL_S", 0.0)


@pytest.fixture
def dealer(router: RouterSocket) -> Generator[DealerSocket, None, None]:
    with closing(open_dealer(router.address, WORKER)) as dealer:
        yield dealer


@pytest.fixture
def raw(router: RouterSocket) -> Generator[Callable[..., object], None, None]:
    """Sends any frames to the router, as identity `raw`."""
    context = zmq.Context()
    socket = raw_dealer(context, connection_to(router.address), b"raw")
    yield lambda *frames: socket.send_multipart(frames)
    socket.close(linger=0)
    context.term()


@needs_ipv6
@pytest.mark.parametrize(("listens", "reached"), [("[::1]", "[::1]"), ("[::]", "127.0.0.1")])
def test_envelopes_travel_over_ipv6(listens: str, reached: str) -> None:
    with closing(open_router(f"tcp://{listens}:0")) as router:
        port = router.address.rpartition(":")[2]
        with closing(open_dealer(f"tcp://{reached}:{port}", WORKER)) as dealer:
            dealer.send(wrap(Leave("done")))
            arrival = next_of(router)
            assert isinstance(arrival, Arrival)
            assert arrival.envelope.message == Leave("done")


def test_envelopes_travel_both_ways(router: RouterSocket, dealer: DealerSocket) -> None:
    assert dealer.send(wrap(Ready(1)))
    assert next_of(router) == Arrival(WORKER, wrap(Ready(1)), BY_WORKER)
    assert router.send(WORKER, wrap(Leave("bye")))
    assert next_of(dealer) == Arrival(b"", wrap(Leave("bye")))
    assert router.receive_up_to(1) == []
    assert dealer.receive() is None


def test_no_more_are_taken_than_asked_for(router: RouterSocket, raw: Callable[..., object]) -> None:
    for lease in range(3):
        raw(*encode(wrap(Ready(lease))))
        raw(b"nonsense")
    arrived = [next_of(router)]
    while len(arrived) < 6:
        taken = router.receive_up_to(2)
        assert len(taken) <= 2
        arrived += taken
        router.wait(TURN_S)
    assert [event.envelope.message for event in arrived if isinstance(event, Arrival)] == [Ready(0), Ready(1), Ready(2)]
    assert [type(event) for event in arrived] == [Arrival, Malformed] * 3
    assert router.malformed == 3
    assert router.receive_up_to(2) == []


def test_a_full_queue_is_a_counted_drop_and_never_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HIGH_WATER_MESSAGES", 5)
    with closing(open_dealer("tcp://127.0.0.1:9", WORKER)) as dealer:  # nobody listens there
        assert [dealer.send(wrap(Ack())) for _ in range(8)] == [True] * 5 + [False] * 3
        assert dealer.dropped == 3


@pytest.mark.parametrize("frames", [(b"",), (b"R\x01", b"\xc1")])
def test_garbage_is_an_event_and_the_next_peer_is_served(
    router: RouterSocket, dealer: DealerSocket, raw: Callable[..., object], frames: tuple[bytes, ...]
) -> None:
    raw(*frames)
    event = next_of(router)
    assert isinstance(event, Malformed)
    assert event.peer == b"raw"
    assert router.malformed == 1
    dealer.send(wrap(Ready(1)))
    assert next_of(router) == Arrival(WORKER, wrap(Ready(1)), BY_WORKER)


def test_a_peer_of_another_version_is_known_and_can_be_told(router: RouterSocket, raw: Callable[..., object]) -> None:
    theirs = PROTOCOL_VERSION + 1
    raw(b"R" + bytes([theirs]), b"a Register of another version")
    event = next_of(router)
    assert isinstance(event, Malformed)
    assert isinstance(event.error, ProtocolMismatchError)
    assert event.error.theirs == theirs
    assert router.send(event.peer, wrap(Rejected("protocol", "no")), protocol=event.error.theirs)


def greeted(address: str) -> socket.socket:
    """A bare connection that speaks ZMTP, and shows no key."""
    host, port = address.removeprefix("tcp://").split(":")
    bare = socket.create_connection((host, int(port)), timeout=HANG_S)
    bare.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    return bare


def is_closed(bare: socket.socket, router: RouterSocket) -> bool:
    """Whether its end was closed by the other side within the deadline, which looks after its connections meanwhile."""
    bare.settimeout(TURN_S)
    for _ in range(int(HANG_S / TURN_S)):
        router.look_after(0.0)
        try:
            if not bare.recv(65_536):
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def test_a_message_that_never_ends_is_not_even_begun_without_a_key(router: RouterSocket, dealer: DealerSocket) -> None:
    """One unfinished message of many frames took 1.2 GiB in two seconds."""
    bare = greeted(router.address)
    frame = b"\x03" + (100_000).to_bytes(8, "big") + bytes(100_000)  # a long frame, and more to come
    sent = 0
    with bare:
        for _ in range(3_000):
            router.look_after(0.0)
            try:
                bare.sendall(frame)
            except OSError:
                break
            sent += len(frame)
        assert is_closed(bare, router)
    assert sent < 100 << 20
    dealer.send(wrap(Ready(1)))
    assert next_of(router) == Arrival(WORKER, wrap(Ready(1)), BY_WORKER)


def closes_one(router: RouterSocket) -> bool:
    """Whether it closes a connection within the deadline."""
    for _ in range(int(HANG_S / TURN_S)):
        router.wait(TURN_S)
        router.look_after(0.0)
        if router.connections.closed:
            return True
    return False


def test_what_nobody_takes_is_cut_off(router: RouterSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand whole messages of any size fitted under the high-water mark."""
    monkeypatch.setattr(connections, "MOST_OF_STRANGERS_BYTES", 1 << 20)
    router.connections.is_worker = lambda peer: False
    with zmq.Context() as context, raw_dealer(context, connection_to(router.address), b"raw") as raw:
        raw.linger = 0
        for _ in range(200):
            raw.send_multipart([encode(wrap(Ready(1)))[0], bytes(100_000)])
        assert closes_one(router)


def test_what_nobody_reads_is_cut_off(router: RouterSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of a megabyte each waited in ten thousands for somebody who asked with 71 bytes and never read."""
    monkeypatch.setattr(connections, "MOST_FOR_STRANGERS_BYTES", 1 << 20)
    router.connections.is_worker = lambda peer: False
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger, raw.rcvhwm, raw.routing_id = 0, 1, b"raw"
        show_keys(raw, caller())
        raw.connect(router.address)
        raw.send_multipart([bytes(frame) for frame in encode(wrap(Ready(1)))])
        assert next_of(router) == Arrival(b"raw", wrap(Ready(1)), BY_WORKER)
        router.look_after(0.0)
        told = [router.send(b"raw", wrap(Rejected("unknown", "x" * 100_000))) for _ in range(200)]
        assert all(told)
        assert closes_one(router)


def test_a_large_message_of_a_stranger_is_not_looked_at(router: RouterSocket, raw: Callable[..., object]) -> None:
    """A header of 29 MiB was decoded for five seconds."""
    large = encode(wrap(Leave("x")))[0], bytes(OF_STRANGERS.header_bytes + 1)
    router.connections.is_worker = lambda peer: peer == b"raw"
    raw(*encode(wrap(Ready(1))))
    next_of(router)
    raw(*large)
    event = next_of(router)
    assert isinstance(event, Malformed)
    assert not isinstance(event.error, TooLargeError), "a worker may say so much"
    router.connections.is_worker = lambda peer: False
    router.look_after(0.0)
    raw(*large)
    event = next_of(router)
    assert isinstance(event, Malformed)
    assert isinstance(event.error, TooLargeError)


def test_a_worker_may_say_what_a_stranger_may_not(router: RouterSocket, dealer: DealerSocket) -> None:
    said = wrap(BatchRequest(1, 1, 1, 1, 1, 0, 0, np.arange(9), np.ones(9, np.float32)))
    dealer.send(said)
    assert isinstance(next_of(router), Arrival)
    router.connections.is_worker = lambda peer: False
    dealer.send(said)
    event = next_of(router)
    assert isinstance(event, Malformed)
    assert isinstance(event.error, TooEarlyError)
    router.look_after(0.0)
    router.connections.is_worker = lambda peer: True
    dealer.send(said)
    assert isinstance(next_of(router), Arrival), "over the same connection, once it is registered"


def test_the_bytes_of_each_connection_are_counted_to_the_last(router: RouterSocket, dealer: DealerSocket) -> None:
    """Else what was miscounted would add up, and one day end the connection of a worker."""
    for number in range(300):
        said = wrap(Leave("x" * (300 * (number % 2))))
        dealer.send(said)
        next_of(router)
        router.send(WORKER, said)
        next_of(dealer)
    router.look_after(0.0)
    waits = [each.backlog(*counts) for each, counts in counted(router)]
    assert len(waits) == 1
    assert -200 < waits[0][0] < 700, "no more than what ZMTP and CURVE say at the beginning"
    assert -700 < waits[0][1] < 1_000, "nor more than what is not acknowledged yet"


def counted(router: RouterSocket) -> list[tuple[connections._Connection, tuple[int, int]]]:  # pyright: ignore[reportPrivateUsage]
    known = router.connections._all.values()  # pyright: ignore[reportPrivateUsage]
    found = [(each, connections.TcpWire().counts(each.descriptor)) for each in known]
    return [(each, counts) for each, counts in found if counts is not None]


def test_the_same_identity_takes_over_from_its_broken_connection(router: RouterSocket, dealer: DealerSocket) -> None:
    dealer.send(wrap(Ready(1)))
    next_of(router)
    with closing(open_dealer(router.address, WORKER)) as again:
        again.send(wrap(Ready(2)))
        assert next_of(router) == Arrival(WORKER, wrap(Ready(2)), BY_WORKER)
        router.send(WORKER, wrap(Leave("to the new one")))
        assert next_of(again) == Arrival(b"", wrap(Leave("to the new one")))


def test_its_descriptor_tells_of_arrivals_once_all_is_received(router: RouterSocket, dealer: DealerSocket) -> None:
    dealer.send(wrap(Ready(1)))
    next_of(router)
    arrivals = select.poll()
    arrivals.register(dealer.fileno(), select.POLLIN)
    for number in range(20):
        while dealer.receive() is not None:
            pass
        router.send(WORKER, wrap(Ready(number)))
        event = None
        while event is None:  # it may also tell of something that is no message
            assert arrivals.poll(1_000 * HANG_S)
            event = dealer.receive()
        assert event == Arrival(b"", wrap(Ready(number)))


def test_a_coordinator_that_is_gone_is_looked_for_at_least_once_a_second(router: RouterSocket) -> None:
    """A run stands still until its workers have found the one that was started again."""
    router.close()
    with closing(open_dealer(router.address, worker_identity("u", 1, "p", 1))) as dealer:
        pauses_ms = retries(dealer, 5)
    assert pauses_ms[0] < pauses_ms[2], "not in a hurry for good"
    assert max(pauses_ms) <= 1_100, pauses_ms


def retries(dealer: DealerSocket, count: int) -> list[int]:
    """The pauses that ZeroMQ made before so many attempts to connect."""
    dealer._socket.disable_monitor()  # a socket has one
    with closing(dealer._socket.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED, "inproc://retries")) as monitor:
        dealer.renew()
        pauses_ms: list[int] = []
        while len(pauses_ms) < count:
            assert monitor.poll(int(1_000 * HANG_S)), pauses_ms
            pauses_ms.append(recv_monitor_message(monitor)["value"])
        dealer._socket.disable_monitor()
    return pauses_ms
