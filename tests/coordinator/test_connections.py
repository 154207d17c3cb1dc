"""What is remembered of conversations is bounded, whatever others ask and do not confirm."""

from __future__ import annotations

import random

import numpy as np
import pytest

from remuda.coordinator import connections as connections_module
from remuda.coordinator.connections import MOST_KEPT, MOST_KEPT_OF_WORKERS_BYTES, Connections, HeldReplies
from remuda.coordinator.effects import Send
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.wire.channel import Received
from remuda.wire.codec import Envelope
from remuda.wire.messages import (
    Ack,
    Batches,
    Beat,
    Counters,
    Done,
    LogPiece,
    LogPosition,
    LogRequest,
    LogText,
    Rejected,
    StopExperiment,
)

PEER = b"client:1"
LARGE = LogText([LogPiece(LogPosition("x"), "x", "y" * 100_000)], over=False)


def receive(peers: Connections, peer: bytes, envelope: Envelope, now_s: float) -> tuple[Received, list[Send]]:
    arrived = peers.receive(peer, envelope, now_s, "somebody")
    assert arrived is not None
    return arrived


def test_answers_that_may_be_asked_for_anew_are_not_kept() -> None:
    """Three hundred questions of 71 bytes kept 290 MB of answers."""
    peers = Connections()
    for id in range(1, 200):
        received, _ = receive(peers, PEER, Envelope(id, 0, 1, LogRequest("x")), 0.0)
        assert received.id == id
        [sent] = peers.answer(PEER, LARGE, 0.0, to=id)
        assert sent.envelope.message is LARGE
    received, repeated = receive(peers, PEER, Envelope(7, 0, 1, LogRequest("x")), 1.0)
    assert (received.id, repeated) == (7, []), "it is asked for again"
    received, repeated = receive(peers, PEER, Envelope(7, 0, 1, LogRequest("x")), 1.0)
    assert (received.message, repeated) == (None, []), "and is being answered"
    assert len(peers.answer(PEER, LARGE, 1.0, to=7)) == 1


def test_an_answer_to_what_changes_something_is_repeated_and_nothing_is_done_twice() -> None:
    peers = Connections()
    stop = Envelope(1, 0, 1, StopExperiment("x"))
    received, _ = receive(peers, PEER, stop, 0.0)
    peers.answer(PEER, Done(), 0.0, to=received.id)
    received, [repeated] = receive(peers, PEER, stop, 1.0)
    assert received.message is None
    assert repeated.envelope.message == Done()


def test_who_confirms_nothing_is_forgotten_and_told_nothing_more() -> None:
    peers = Connections()
    told = 0
    for id in range(1, 10 * MOST_KEPT):
        received, _ = receive(peers, PEER, Envelope(id, 0, 1, StopExperiment("x")), 0.0)
        if received.id:
            told += len(peers.answer(PEER, Rejected("unknown", "x" * 1_000), 0.0, to=received.id))
    assert told <= MOST_KEPT + 1


def test_a_worker_that_does_not_read_is_named() -> None:
    peers = Connections(lambda peer: peer == b"worker")
    rows = np.zeros((100, 100_000), np.int64)
    batches = Batches(1, 1, rows, np.zeros((1, 1), np.float32), [], 0, Counters())
    receive(peers, b"worker", Envelope(0, 0, 1, Beat(0, "")), 0.0)
    for _ in range(MOST_KEPT_OF_WORKERS_BYTES // rows.nbytes):
        peers.post(b"worker", batches, 0.0)
    assert peers.take_unresponsive() == set()
    peers.post(b"worker", batches, 0.0)
    assert peers.take_unresponsive() == {b"worker"}
    for id in range(1, 10):
        receive(peers, b"worker", Envelope(0, id, 1, Ack()), 1.0)
    assert peers.take_unresponsive() == set()


def test_the_number_of_conversations_is_bounded_and_workers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "MOST_PEERS", 100)
    monkeypatch.setattr(connections_module, "MADE_ROOM", 10)
    peers = Connections(lambda peer: peer.startswith(b"worker"))
    for number in range(20):
        receive(peers, f"worker {number}".encode(), Envelope(0, 0, 1, Beat(0, "")), 0.0)
    for number in range(1_000):
        receive(peers, f"stranger {number}".encode(), Envelope(1, 0, 1, StopExperiment("x")), 1.0 + number)
        assert len(peers) <= 100
    for number in range(20):
        assert peers.post(f"worker {number}".encode(), Done(), 2_000.0) != []
    assert peers.post(b"stranger 0", Done(), 2_000.0) == []
    assert peers.post(b"stranger 999", Done(), 2_000.0) != []


def test_a_worker_that_confirms_nothing_loses_its_lease_and_its_run_goes_on() -> None:
    world = World(config(stop={"max_env_steps": 1_000_000}, collector={"count": 2, "chunk_env_steps": 64})).started()
    world.steps(60)
    unresponsive = world.of("evaluator")[0]
    unresponsive.deaf = True
    for _ in range(connections_module.MOST_KEPT_OF_WORKERS + 10):
        world.apply([*world.coordinator.connections.post(unresponsive.peer, Done(), world.now_s)])
    world.steps(10)
    assert all(worker.uuid != unresponsive.uuid for worker in world.coordinator.registry)
    assert world.experiment().state == "running"


class Scene:
    """An outbox, what it has let go, and the turn that each run's journal has yet to take."""

    def __init__(self) -> None:
        self.sent: list[Send] = []
        self.waiting: dict[str, int] = {}
        self.held_replies = HeldReplies(self.sent.append, lambda experiment: self.waiting.get(experiment, 0))

    def put(
        self, number: int, after: str = "", *, peer: bytes = b"peer", again: bool = False, reply_to: int = 0
    ) -> Send:
        send = Send(peer, Envelope(number, reply_to, 1, Ack()), after, again)
        self.held_replies.put(send)
        return send


def test_a_repetition_is_not_needed_while_the_message_itself_waits() -> None:
    """So what waits does not grow however often a peer repeats itself, and nothing gets around a journal."""
    scene = Scene()
    scene.waiting["a"] = 7
    first = scene.put(1, after="a")
    for _ in range(1_000):
        scene.put(1, again=True)
    other = scene.put(3, peer=b"another", again=True)
    assert (scene.sent, len(scene.held_replies)) == ([other], 1)
    scene.held_replies.journaled("a", 7)
    again = scene.put(1, again=True)
    assert scene.sent == [other, first, again]


def test_an_answer_that_was_sent_is_repeated_while_another_message_waits_for_the_same_peer() -> None:
    """The first one may have been lost: a worker that hears nothing takes its coordinator for dead."""
    scene = Scene()
    scene.waiting["a"] = 7
    scene.put(0, after="a", reply_to=3)
    answer = scene.put(0, reply_to=2)
    again = scene.put(0, reply_to=2, again=True)
    scene.put(0, reply_to=3, again=True)
    assert (scene.sent, len(scene.held_replies)) == ([answer, again], 1)


def test_what_waits_for_a_journal_that_is_given_up_is_never_said() -> None:
    scene = Scene()
    scene.waiting["a"] = 7
    scene.put(1, after="a")
    scene.held_replies.drop("a")
    scene.held_replies.journaled("a", 7)
    assert (scene.sent, len(scene.held_replies)) == ([], 0)


def test_whatever_the_order_nothing_is_said_before_its_journal_has_it_and_all_is_said_once() -> None:
    draw = random.Random(5)
    for _ in range(200):
        scene = Scene()
        journaled = dict.fromkeys("abc", 0)
        waits: dict[int, tuple[str, int]] = {}
        for turn in range(1, 30):
            run = draw.choice("abc")
            scene.waiting[run] = turn
            scene.put(turn, after=run, peer=draw.choice([b"x", b"y"]))
            waits[turn] = run, turn
            if draw.random() < 0.5:
                other = draw.choice("abc")
                journaled[other] = max(journaled[other], scene.waiting.get(other, 0))
                scene.waiting[other] = 0
                scene.held_replies.journaled(other, journaled[other])
            for sent in scene.sent:
                of, needs = waits[sent.envelope.id]
                assert journaled[of] >= needs
        for run in "abc":
            scene.held_replies.journaled(run, 30)
        assert sorted(sent.envelope.id for sent in scene.sent) == list(range(1, 30))
