"""A worker's link: it registers, beats, repeats and acknowledges by itself, and says clearly when it is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

import pytest
import zmq
from msgspec.structs import replace

from remuda.tests.keys import connection_to, keys_folder
from remuda.tests.patience import HANG_S
from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.tests.worker.proxy import Proxy
from remuda.wire import sockets
from remuda.wire.channel import Channel
from remuda.wire.codec import Envelope
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.conversation import RefusedError
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    AnyMessage,
    Beat,
    Bye,
    Drain,
    Drained,
    Leave,
    Ready,
    Register,
    Registered,
    Rejected,
    StopTraining,
)
from remuda.wire.patience import CoordinatorLostError, Patience
from remuda.worker import session
from remuda.worker.link import Link

REGISTER = Register(UUID, 3, "collector", "here", 7, PROTOCOL_VERSION, "0.1")


@contextmanager
def linked(coordinator: FakeCoordinator) -> Generator[Link, None, None]:
    link = Link(coordinator.connection, REGISTER)
    try:
        link.start(HANG_S)
        yield link
    finally:
        link.close("the test is over", 0.0)


@pytest.fixture
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link repeats what is not acknowledged after 0.05 s, and not after a second."""
    monkeypatch.setattr(session, "Channel", partial(Channel, resend_s=0.05, resend_max_s=0.1))


def receive(link: Link) -> AnyMessage:
    message = link.receive(HANG_S)
    assert message is not None, "nothing came"
    return message


# --- coming and going ------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("soon_again")
def test_an_assignment_that_overtakes_the_lost_answer_is_kept() -> None:
    with FakeCoordinator() as coordinator:
        lost: list[Envelope] = []

        def lose_registered_once(envelope: Envelope) -> bool:
            if isinstance(envelope.message, Registered) and not lost:
                lost.append(envelope)
                coordinator.to_send += [StopTraining(1), StopTraining(2)]
                return True
            return False

        coordinator.lose = lose_registered_once
        with linked(coordinator) as link:
            assert [receive(link), receive(link)] == [StopTraining(1), StopTraining(2)]
            assert coordinator.heard_of(Register) == [REGISTER], "repeated, yet handled once"
            (peer,) = coordinator.peers
            assert peer.startswith(f"{UUID}:3:".encode())


def test_a_refusal_is_raised_with_its_code_and_reason_and_stays() -> None:
    with FakeCoordinator() as coordinator:
        coordinator.answer = lambda message: Rejected("superseded", "incarnation 4 is alive")
        link = Link(coordinator.connection, REGISTER)
        with pytest.raises(RefusedError, match="incarnation 4 is alive") as caught:
            link.start(HANG_S)
        assert caught.value.code == "superseded"
        for timeout_s in (0.0, 1.0):
            with pytest.raises(RefusedError, match="incarnation 4 is alive"):
                link.receive(timeout_s)
        link.close("refused", HANG_S)


def test_a_stale_connection_file_is_left_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator was killed yesterday; the next one is being started, and listens elsewhere."""
    monkeypatch.setattr(session, "STALE_S", 0.0)
    with FakeCoordinator() as dead:
        stale = dead.connection
    with FakeCoordinator() as coordinator:
        found = replace(coordinator.connection, coordinator=UUID.replace("0", "1"))
        link = Link(stale, REGISTER, look_again=lambda: found)
        assert link.start(HANG_S) == coordinator.registered
        assert link.close("done", HANG_S)


@pytest.mark.usefixtures("soon_again")
def test_closing_waits_for_acknowledgement_and_closing_twice_is_fine() -> None:
    with FakeCoordinator() as coordinator:
        lost: list[Envelope] = []

        def lose_the_first_acks(envelope: Envelope) -> bool:
            lost.append(envelope)
            return envelope.reply_to > 1 and len(lost) < 12

        coordinator.lose = lose_the_first_acks
        link = Link(coordinator.connection, REGISTER)
        link.start(HANG_S)
        for lease in range(5):
            link.send(Ready(lease))
        assert link.close("done", HANG_S)
        assert coordinator.heard_of(Ready) == [Ready(lease) for lease in range(5)]
        assert coordinator.heard_of(Bye) == [Bye("done")]
        assert link.close("again", HANG_S)


def test_closing_does_not_wait_for_a_coordinator_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends a worker that waits for its coordinator does not want to wait as well."""
    monkeypatch.setattr(session, "QUIET_S", 0.3)
    with FakeCoordinator() as coordinator, linked(coordinator) as link:
        coordinator.silent = True
        link.send(Ready(1))
        begun_s = time.monotonic()
        assert not link.close("asked to", HANG_S)
        assert time.monotonic() - begun_s < HANG_S / 2


# --- messages --------------------------------------------------------------------------------------------------------
def test_while_the_main_thread_is_away_another_takes_what_comes_and_acknowledges_it() -> None:
    with FakeCoordinator() as coordinator, linked(coordinator) as link:
        coordinator.to_send.append(Leave("shutdown"))
        coordinator.until(lambda: not coordinator.to_send and not coordinator.unacknowledged)
        assert link.receive(0.0) == Leave("shutdown")


def test_what_another_thread_s_sending_brings_in_ends_the_main_thread_s_waiting() -> None:
    """Whoever sends also takes what has arrived; the main thread must get it, however often they meet."""
    with FakeCoordinator() as coordinator, linked(coordinator) as link:
        sent = 300
        coordinator.answer = lambda message: StopTraining(message.lease) if isinstance(message, Ready) else None

        def send_all() -> None:
            for lease in range(sent):
                link.send(Ready(lease))

        sender = threading.Thread(target=send_all)
        sender.start()
        assert [receive(link) for _ in range(sent)] == [StopTraining(lease) for lease in range(sent)]
        sender.join()


def test_a_drain_that_has_arrived_is_known_before_it_is_received() -> None:
    with FakeCoordinator() as coordinator, linked(coordinator) as link:
        coordinator.to_send += [StopTraining(5), Drain(5, "enough")]
        coordinator.until(lambda: link.drain_arrived(5))
        assert not link.drain_arrived(4)
        assert [receive(link), receive(link)] == [StopTraining(5), Drain(5, "enough")]
        assert not link.drain_arrived(5)


# --- beats -----------------------------------------------------------------------------------------------------------
def test_beats_go_on_while_the_main_thread_does_something_else() -> None:
    """And they say what was set last, and all progress."""
    with FakeCoordinator() as coordinator, linked(coordinator) as link:
        link.progress(40)
        link.progress(24)
        link.activity("working", "collecting")
        link.begin_lease(5)
        coordinator.until(lambda: len([beat for beat in coordinator.heard_of(Beat) if is_collecting(beat)]) >= 3)
        link.end_lease(5)
        coordinator.until(lambda: Drained(5) in coordinator.heard)
        coordinator.until(lambda: isinstance(coordinator.heard[-1], Beat) and coordinator.heard[-1].lease == 0)
        idle = coordinator.heard[-1]
        assert isinstance(idle, Beat)
        assert idle.activity == "idle", "what it did for the lease before is over"


def is_collecting(beat: AnyMessage) -> bool:
    return (
        isinstance(beat, Beat)
        and (beat.progress, beat.activity, beat.lease) == (64, "collecting", 5)
        and beat.rss_bytes > 1_000_000
        and beat.cpu_s > 0
    )


def test_a_silent_coordinator_is_lost_and_stays_so() -> None:
    failed, patience = threading.Event(), Patience()
    with FakeCoordinator() as coordinator:
        link = Link(coordinator.connection, REGISTER, on_failure=failed.set, patience=patience)
        link.start(HANG_S)
        coordinator.silent, patience.limit_s = True, 0.3
        for _ in range(2):
            with pytest.raises(CoordinatorLostError, match=r"nothing was heard .* \(the limit is 0\.3 s\)"):
                receive(link)
        assert failed.wait(HANG_S)
        link.send(Ready(1))
        assert not link.close("lost", 0.0)


# --- a bad network ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fault", [Proxy.cut, Proxy.swallow], ids=["cut", "swallowed"])
def test_a_broken_connection_loses_no_message(fault: Callable[[Proxy], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nobody was told that it broke: silence is noticed, and the new connection takes over the identity."""
    with FakeCoordinator() as coordinator, Proxy(port_of(coordinator)) as proxy:
        link = Link(replace(coordinator.connection, address=proxy.address), REGISTER)
        link.start(HANG_S)
        for round_ in range(3):
            fault(proxy)
            proxy.silence_is_over(sockets, monkeypatch)
            link.send(Ready(round_))
            coordinator.to_send.append(StopTraining(round_))
            assert receive(link) == StopTraining(round_)
        assert link.close("done", HANG_S)
        assert coordinator.heard_of(Ready) == [Ready(0), Ready(1), Ready(2)]
        assert len(coordinator.peers) == 1
        assert proxy.connections >= 4


def port_of(coordinator: FakeCoordinator) -> int:
    return int(coordinator.connection.address.rsplit(":", 1)[1])


def raw_router(*, answer: list[bytes]) -> tuple[ConnectionFile, threading.Thread]:
    """Something that binds, answers the first message with `answer`, and leaves."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.curve_server, socket.curve_secretkey = 1, keys_folder().server.secret
    port = socket.bind_to_random_port("tcp://127.0.0.1")

    def serve() -> None:
        if socket.poll(int(1_000 * HANG_S)):
            peer, *_ = socket.recv_multipart()
            socket.send_multipart([peer, *answer])
        socket.close(linger=1_000)
        context.term()

    thread = threading.Thread(target=serve)
    thread.start()
    return connection_to(f"tcp://127.0.0.1:{port}"), thread


def start_and_close(connection: ConnectionFile, deadline_s: float) -> None:
    link = Link(connection, REGISTER)
    try:
        link.start(deadline_s)
    finally:
        link.close("the test is over", 0.0)


def test_a_coordinator_of_another_version_is_refused_by_the_worker() -> None:
    theirs = PROTOCOL_VERSION + 1
    connection, thread = raw_router(answer=[b"R" + bytes([theirs]), b"whatever it says"])
    with pytest.raises(
        RefusedError, match=f"speaks protocol {theirs}, this process protocol {PROTOCOL_VERSION}; install the same"
    ) as caught:
        start_and_close(connection, HANG_S)
    assert caught.value.code == "protocol"
    thread.join()
