"""A client asks, the coordinator answers: at once, later, never, or no."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager

import pytest
from msgspec.structs import replace

from remuda.tests.keys import connection_to
from remuda.tests.keys import router as open_router
from remuda.tests.patience import HANG_S
from remuda.tests.worker.proxy import Proxy
from remuda.wire import conversation
from remuda.wire.channel import Channel, Received
from remuda.wire.codec import Envelope
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.conversation import Conversation, MovedError, RefusedError, UnreachableError
from remuda.wire.messages import AnyMessage, Done, Rejected, Shutdown, StatusRequest, StopExperiment
from remuda.wire.sockets import Arrival

Respond = Callable[[Channel, Received], list[Envelope | None]]


@contextmanager
def coordinator(respond: Respond, handled: list[AnyMessage]) -> Generator[ConnectionFile, None, None]:
    """One conversation's other end, which answers each new message as `respond` says."""
    router = open_router()
    stop = threading.Event()

    def serve() -> None:
        channel = Channel()
        with closing(router):
            while not stop.is_set():
                router.wait(0.01)
                while events := router.receive_up_to(1):
                    (event,) = events
                    assert isinstance(event, Arrival)
                    received = channel.receive(event.envelope, 0.0)
                    out: list[Envelope | None] = [*received.answers]
                    if received.message is not None:
                        handled.append(received.message)
                        out += respond(channel, received)
                    for envelope in filter(None, out):
                        router.send(event.peer, envelope)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield connection_to(router.address)
    finally:
        stop.set()
        thread.join()


def test_an_answer_after_a_mere_acknowledgement() -> None:
    def respond(channel: Channel, asked: Received) -> list[Envelope | None]:
        return [channel.answer(asked.id), channel.post(Done(), 0.0)]

    with coordinator(respond, []) as connection, closing(Conversation(connection)) as talk:
        assert talk.ask(Shutdown(), HANG_S) == Done()


def test_a_lost_answer_is_fetched_by_asking_again() -> None:
    handled: list[AnyMessage] = []

    def answer_that_is_lost(channel: Channel, asked: Received) -> list[Envelope | None]:
        channel.answer(asked.id, Done())
        return []

    with coordinator(answer_that_is_lost, handled) as connection, closing(Conversation(connection)) as talk:
        assert talk.ask(Shutdown(), HANG_S) == Done()
    assert handled == [Shutdown()], "asked twice, handled once"


def test_a_connection_that_something_between_swallows_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that it broke: the silence is noticed, and the question is asked over another connection."""
    handled: list[AnyMessage] = []

    def at_once(channel: Channel, asked: Received) -> list[Envelope | None]:
        return [channel.answer(asked.id, Done())]

    with coordinator(at_once, handled) as connection, Proxy(int(connection.address.rsplit(":", 1)[1])) as proxy:
        with closing(Conversation(replace(connection, address=proxy.address))) as asking:
            assert asking.ask(StopExperiment("first"), HANG_S) == Done()
            proxy.swallow()
            proxy.silence_is_over(conversation, monkeypatch)
            assert asking.ask(StopExperiment("second"), HANG_S) == Done()
        assert proxy.connections >= 2
    assert handled == [StopExperiment("first"), StopExperiment("second")]


def test_no() -> None:
    def respond(channel: Channel, asked: Received) -> list[Envelope | None]:
        return [channel.answer(asked.id, Rejected("unknown", "no experiment is called x"))]

    with (
        coordinator(respond, []) as connection,
        closing(Conversation(connection)) as talk,
        pytest.raises(RefusedError, match="no experiment is called x") as caught,
    ):
        talk.ask(StatusRequest("x"), HANG_S)
    assert caught.value.code == "unknown"


def test_what_the_coordinator_would_not_understand_is_refused_here() -> None:
    """It would never be answered."""
    handled: list[AnyMessage] = []
    with (
        coordinator(lambda channel, asked: [channel.answer(asked.id, Done())], handled) as connection,
        closing(Conversation(connection)) as asking,
    ):
        with pytest.raises(RefusedError, match="length <= 1000") as caught:
            asking.ask(StopExperiment("x" * 1_001), 0.3)
        assert caught.value.code == "malformed"
        assert asking.ask(StopExperiment("x"), HANG_S) == Done()
    assert handled == [StopExperiment("x")]


def test_no_answer_has_a_deadline() -> None:
    with coordinator(lambda channel, asked: [], []) as connection, closing(Conversation(connection)) as talk:
        begun_s = time.monotonic()
        with pytest.raises(
            UnreachableError, match=r"\(process 1 on here\) did not answer within 0\.1 s: it may have ended"
        ):
            talk.ask(Shutdown(), 0.1)
        assert time.monotonic() - begun_s < HANG_S


def test_one_that_is_not_to_be_asked_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection file names another now; the question may be put to that one."""
    monkeypatch.setattr(conversation, "_LOOK_S", 0.05)
    asked: list[AnyMessage] = []
    looks = [False, False, True]
    with (
        coordinator(lambda channel, question: [], asked) as connection,
        closing(Conversation(connection)) as talk,
        pytest.raises(MovedError),
    ):
        talk.ask(Shutdown(), HANG_S, moved=lambda: looks.pop(0))
    assert looks == []
