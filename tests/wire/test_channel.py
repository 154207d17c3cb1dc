"""Two ends and a network that loses, repeats and reorders: every reliable message arrives once and in order."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.wire.channel import NOT_RESENT, Channel, Received
from remuda.wire.codec import Envelope
from remuda.wire.messages import Ack, AnyMessage, Beat, Done, Drain, Leave, Ready


def returned(channel: Channel, envelope: Envelope, now_s: float = 0.0) -> AnyMessage | None:
    return channel.receive(envelope, now_s).message


# --- one step at a time ----------------------------------------------------------------------------------------------
def test_a_message_is_repeated_with_doubling_pauses_up_to_the_cap() -> None:
    channel = Channel(resend_s=1.0, resend_max_s=5.0)
    posted = channel.post(Ready(1), 100.0)
    sent_at_s: list[float] = []
    for tick in range(301):
        now_s = 100.0 + tick / 10
        due = channel.due(now_s)
        assert due in ([], [posted])
        if due:
            sent_at_s.append(now_s)
    assert sent_at_s == [101.0, 103.0, 107.0, 112.0, 117.0, 122.0, 127.0]


def test_what_is_due_is_all_that_is_not_acknowledged_oldest_first() -> None:
    channel = Channel(resend_s=1.0)
    assert channel.next_due_s() is None
    posted = [channel.post(Ready(number), 10.0 + number / 10) for number in range(4)]
    assert channel.next_due_s() == 11.0
    assert channel.due(10.9) == []
    assert channel.due(11.0) == posted
    assert channel.next_due_s() == 13.0
    channel.receive(Envelope(0, 2, 1, Ack()), 11.5)
    assert channel.next_due_s() == 13.0, "the oldest still waits"
    channel.receive(Envelope(0, 1, 1, Ack()), 11.6)
    assert channel.next_due_s() == 12.6, "it got through: the pauses start over"
    assert [envelope.id for envelope in channel.due(12.6)] == [3, 4]
    for id in (3, 4):
        channel.receive(Envelope(0, id, 1, Ack()), 13.0)
    assert channel.next_due_s() is None
    assert channel.due(1e9) == []


def test_over_a_new_connection_everything_is_due_at_once_and_pauses_begin_anew() -> None:
    channel = Channel(resend_s=1.0)
    sent = [channel.post(Ready(lease), 0.0) for lease in range(2)]
    for now_s in (1.0, 3.0):
        assert channel.due(now_s) == sent
    channel.hurry(4.5)
    assert channel.due(4.5) == sent
    assert channel.due(5.4) == []
    assert channel.due(5.5) == sent


def test_what_is_taken_is_acknowledged_at_once_where_it_needs_to_be() -> None:
    here, there = Channel(), Channel()
    note = here.post(Ready(1), 0.0)
    ack = Envelope(0, note.id, 1, Ack())
    assert there.take(note, 0.0) == Received(Ready(1), 0, (ack,))
    assert there.take(note, 1.0) == Received(None, 0, (ack,)), "the first Ack was lost"
    assert there.take(here.post(Beat(3, "x"), 1.0), 1.0) == Received(Beat(3, "x"), 0)
    assert here.take(ack, 1.0) == Received(None, 0)
    assert here.unacknowledged == 0


def test_an_end_that_continues_against_a_fresh_one_is_understood() -> None:
    """A coordinator that restarts hears from workers in the middle of their work, and can tell them so."""
    here, there = Channel(), Channel()
    for _ in range(5_000):
        ack = there.answer(there.receive(here.post(Ready(1), 0.0), 0.0).id)
        assert ack is not None
        here.receive(ack, 0.0)
    restarted = Channel()
    assert returned(restarted, here.post(Ready(2), 0.0)) == Ready(2)


def test_answers_are_forgotten_however_far_the_other_end_leaps() -> None:
    here, there = Channel(window=8), Channel(window=8)
    for number in range(8):
        received = there.receive(here.post(Ready(number), 0.0), 0.0)
        there.answer(received.id, Done())
    assert remembered(there) == 8
    there.receive(Envelope(0, 0, 2**53, Beat(0, "")), 0.0)
    assert remembered(there) == 0


def remembered(channel: Channel) -> int:
    """How many answers are kept for repetition: what grows if anything does."""
    return len(channel._replies)  # pyright: ignore[reportPrivateUsage]


# --- a bad network ---------------------------------------------------------------------------------------------------
@dataclass
class End:
    """One end, its application (which acknowledges, answers at once or answers later), and what is on its way to it."""

    rng: random.Random
    window: int
    channel: Channel = field(init=False)
    arriving: list[Envelope] = field(default_factory=list[Envelope])
    to_answer: list[int] = field(default_factory=list[int])
    handled: list[AnyMessage] = field(default_factory=list[AnyMessage])
    answers: Counter[int] = field(default_factory=Counter[int])
    questions: set[int] = field(default_factory=set[int])
    posted: list[AnyMessage] = field(default_factory=list[AnyMessage])
    most_remembered: int = 0

    def __post_init__(self) -> None:
        self.channel = Channel(window=self.window)

    def take(self, envelope: Envelope, now_s: float) -> list[Envelope]:
        received = self.channel.receive(envelope, now_s)
        out = [*received.answers]
        match received.message:
            case None:
                pass
            case Done():
                self.answers[envelope.reply_to] += 1
            case Drain():
                self.handled.append(received.message)
                if self.rng.random() < 0.5:
                    self.to_answer.append(received.id)
                else:
                    out += sent(self.channel.answer(received.id, Done()))
            case message:
                if not isinstance(message, NOT_RESENT):
                    self.handled.append(message)
                out += sent(self.channel.answer(received.id))
        self.most_remembered = max(self.most_remembered, remembered(self.channel))
        return out

    def speak(self, now_s: float) -> list[Envelope]:
        number = len(self.posted)
        choices: list[AnyMessage] = [Leave(str(number)), Drain(number, "question"), Beat(number, "")]
        message = self.rng.choice(choices)
        envelope = self.channel.post(message, now_s)
        self.posted.append(message)
        if isinstance(message, Drain):
            self.questions.add(envelope.id)
        return [envelope]

    def answer_one(self, now_s: float) -> list[Envelope]:
        if not self.to_answer:
            return []
        id = self.to_answer.pop(self.rng.randrange(len(self.to_answer)))
        return sent(self.channel.answer(id, Done()))


def sent(answer: Envelope | None) -> list[Envelope]:
    return [] if answer is None else [answer]


def settle(left: End, right: End, now_s: float) -> None:
    """The network works again: everything that is due is delivered until nothing is."""
    for _ in range(400):
        now_s += 4.0
        for end, other in ((left, right), (right, left)):
            while end.to_answer:
                other.arriving += end.answer_one(now_s)
            other.arriving += end.channel.due(now_s)
        while left.arriving or right.arriving:
            for end, other in ((left, right), (right, left)):
                arriving, end.arriving = end.arriving, []
                for envelope in arriving:
                    other.arriving += end.take(envelope, now_s)
        if not (left.channel.unacknowledged or right.channel.unacknowledged or left.to_answer or right.to_answer):
            return
    raise AssertionError("the ends did not settle")


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), loss=st.floats(0, 0.9), window=st.sampled_from([1, 2, 5, 1_024]))
def test_everything_arrives_once_and_in_order_in_both_directions(seed: int, loss: float, window: int) -> None:
    rng = random.Random(seed)
    left, right = End(rng, window), End(rng, window)
    now_s = 0.0
    for _ in range(400):
        now_s += rng.random()
        end, other = rng.sample([left, right], 2)
        match rng.randrange(6):
            case 0:
                other.arriving += end.speak(now_s)
            case 1:
                other.arriving += end.channel.due(now_s)
            case 2:
                other.arriving += end.answer_one(now_s)
            case _ if end.arriving:
                place = rng.randrange(len(end.arriving))
                envelope = end.arriving[place] if rng.random() < 0.2 else end.arriving.pop(place)
                if rng.random() >= loss:
                    other.arriving += end.take(envelope, now_s)
            case _:
                pass
    settle(left, right, now_s)
    for end, other in ((left, right), (right, left)):
        reliable = [message for message in end.posted if not isinstance(message, NOT_RESENT)]
        assert other.handled == reliable
        assert end.answers == Counter(end.questions)
        assert other.most_remembered <= window
        assert end.channel.due(now_s + 1e6) == []
