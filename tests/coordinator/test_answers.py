"""The coordinator answers as the reference of messages says (docs/protocol_page.py); all else is acknowledged."""

from __future__ import annotations

from typing import get_args

from remuda.coordinator import effects as fx
from remuda.coordinator.events import Received
from remuda.docs.protocol_page import REPLIES
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.tests.keys import somebody_for
from remuda.wire.channel import Channel
from remuda.wire.codec import Envelope
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    AnyMessage,
    BatchRequest,
    Beat,
    BeatHeard,
    ClientMessage,
    LogRequest,
    Message,
    Prioritize,
    Ready,
    Register,
    Rejected,
    Shutdown,
    StatusRequest,
    StopExperiment,
    WorkerMessage,
)

STRANGER = "00000000-0000-4000-8000-000000000001"


class Listening(World):
    """A world that notes each message sent to the coordinator with what answered it."""

    def __init__(self) -> None:
        super().__init__(config())
        self.asked: dict[tuple[bytes, int], type[Message]] = {}
        self.answered: dict[type[Message], set[type[Message]]] = {}

    def to_coordinator(self, peer: bytes, envelope: Envelope) -> None:
        if envelope.id:
            self.asked[peer, envelope.id] = type(envelope.message)
        super().to_coordinator(peer, envelope)

    def apply(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Send) and effect.envelope.reply_to:
                question = self.asked[effect.peer, effect.envelope.reply_to]
                self.answered.setdefault(question, set()).add(type(effect.envelope.message))
            elif isinstance(effect, fx.Send) and isinstance(effect.envelope.message, BeatHeard):
                self.answered.setdefault(Beat, set()).add(BeatHeard)
        super().apply(effects)


def test_a_whole_run_is_answered_as_the_table_says() -> None:
    world = Listening()
    world.herd(collectors=2)
    world.submit()
    world.ask(StatusRequest())
    world.ask(StopExperiment("nonsense"))
    world.ask(Prioritize("x", 1))
    world.run()
    world.ask(LogRequest("x"))
    world.ask(LogRequest("nobody"))
    world.ask(StopExperiment("x"))
    world.ask(Shutdown())
    world.steps(20)
    asked: set[type[Message]] = {*get_args(WorkerMessage), *get_args(ClientMessage)}
    for question, answers in world.answered.items():
        expected = REPLIES.get(question, (Ack,))
        assert question in asked
        assert answers <= {*expected, Rejected}, question.__name__
        assert expected[0] in answers, question.__name__
    assert set(REPLIES) <= set(world.answered)
    assert BatchRequest in world.answered


def said_to_a_fresh_coordinator(peer: bytes, *messages: AnyMessage) -> list[AnyMessage]:
    """What it sends back to somebody it has never seen."""
    world, channel = World(config()), Channel()
    effects = [
        effect
        for message in messages
        for effect in world.coordinator.handle(
            Received(peer, channel.post(message, world.now_s), somebody_for(message)), world.now_s
        )
    ]
    return [effect.envelope.message for effect in effects if isinstance(effect, fx.Send)]


def test_a_worker_that_is_not_registered_is_told_so_at_every_word() -> None:
    replies = said_to_a_fresh_coordinator(f"{STRANGER}:1".encode(), Beat(0, "idle"), Ready(1))
    assert [reply.code for reply in replies if isinstance(reply, Rejected)] == ["unknown", "unknown"]
    assert len(replies) == 2


def test_another_protocol_is_refused_with_both_numbers() -> None:
    register = Register(STRANGER, 1, "learner", "here", 1, PROTOCOL_VERSION + 1, "9.9")
    (reply,) = said_to_a_fresh_coordinator(f"{STRANGER}:1:sim:0".encode(), register)
    assert isinstance(reply, Rejected)
    assert reply.code == "protocol"
    assert f"speaks protocol {PROTOCOL_VERSION}, " in reply.reason
    assert f"speaks {PROTOCOL_VERSION + 1};" in reply.reason
