"""What may be said only once a journal has it waits for that; everything else goes at once."""

from __future__ import annotations

import random

from remuda.coordinator.connections import HeldReplies
from remuda.coordinator.effects import Send
from remuda.wire.codec import Envelope
from remuda.wire.messages import Ack


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
