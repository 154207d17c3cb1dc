"""Each right allows its messages and no others; who has not the right leaves no trace."""

from __future__ import annotations

from typing import get_args

import pytest

from remuda.coordinator import effects as fx
from remuda.coordinator.events import Received
from remuda.coordinator.rights import MAY_SAY
from remuda.docs.protocol_page import REPLIES
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.tests.keys import OPERATOR, WORKER, somebody_for
from remuda.wire.channel import Channel
from remuda.wire.codec import Envelope
from remuda.wire.keys.authorized import RIGHTS, Identity
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    AnyMessage,
    BatchRequest,
    Beat,
    BeatHeard,
    BillRequest,
    Bye,
    ClientMessage,
    LogRequest,
    Message,
    Prioritize,
    Quota,
    QuotaRequest,
    Ready,
    RefusalCounts,
    Register,
    Rejected,
    SetQuota,
    Shutdown,
    StatusRequest,
    StopExperiment,
    Submit,
    WorkerMessage,
)

VIEWER = Identity("alice", "viewer")
UUID = "99999999-9999-4999-8999-999999999999"
REGISTER = Register(UUID, 1, "collector", "here", 1, PROTOCOL_VERSION, "0")
PEER = f"{UUID}:1:x:0".encode()
CLIENT = b"client:1"


def test_every_right_has_its_messages() -> None:
    assert set(MAY_SAY) == set(RIGHTS)
    assert MAY_SAY["viewer"] == {StatusRequest, LogRequest, BillRequest, QuotaRequest, Ack}
    assert MAY_SAY["operator"] == {*get_args(ClientMessage), Ack}
    assert MAY_SAY["worker"] == {*get_args(WorkerMessage), Ack}
    assert MAY_SAY["operator"] & MAY_SAY["worker"] == {Ack}


def say(world: World, who: Identity, message: AnyMessage, peer: bytes = CLIENT, id: int = 1) -> list[fx.Effect]:
    return world.coordinator.handle(Received(peer, Envelope(id, 0, 1, message), who), world.now_s)


@pytest.mark.parametrize(
    ("who", "message"),
    [
        (VIEWER, StopExperiment("x")),
        (VIEWER, Prioritize("x", 1)),
        (VIEWER, SetQuota(Quota("user/alice", weight=9.0))),
        (VIEWER, Shutdown()),
        (VIEWER, Submit("x", "{}", "x")),
        (VIEWER, REGISTER),
        (OPERATOR, REGISTER),
        (OPERATOR, Bye("x")),
        (WORKER, Submit("x", "{}", "x")),
        (WORKER, Shutdown()),
        (WORKER, StatusRequest()),
    ],
    ids=lambda value: value.name if isinstance(value, Identity) else type(value).__name__,
)
def test_what_a_right_does_not_allow_is_answered_and_leaves_nothing(who: Identity, message: AnyMessage) -> None:
    world = World(config())
    [answer] = say(world, who, message, PEER, 7)
    assert isinstance(answer, fx.Send)
    assert (answer.peer, answer.envelope.reply_to) == (PEER, 7)
    assert isinstance(answer.envelope.message, Rejected)
    assert answer.envelope.message.code == "forbidden"
    assert world.coordinator.connections.of({who.name}) == [], "no conversation is kept"
    assert not world.coordinator.registry.has(PEER)
    assert world.status().coordinator.refusals == RefusalCounts(forbidden=1)


def test_a_routing_id_that_belongs_to_another_key_is_not_believed_and_not_answered() -> None:
    """Its true owner might get the answer."""
    world = World(config())
    say(world, WORKER, REGISTER, PEER)
    thief = Identity("mallory", "worker")
    for message in (Bye("I leave"), Beat(9, "busy"), REGISTER):
        assert say(world, thief, message, PEER, 2) == []
    assert world.coordinator.registry.has(PEER)
    assert world.status().coordinator.refusals == RefusalCounts(taken_identity=3)
    say(world, VIEWER, StatusRequest(), CLIENT)
    assert say(world, OPERATOR, Shutdown(), CLIENT, 2) == []


STRANGER = "00000000-0000-4000-8000-000000000001"


class Listening(World):
    """A world that notes each message sent to the coordinator with what answered it."""

    def __init__(self) -> None:
        super().__init__(config())
        self.asked: dict[tuple[bytes, int], type[Message]] = {}
        self.kinds_answered: dict[type[Message], set[type[Message]]] = {}

    def to_coordinator(self, peer: bytes, envelope: Envelope) -> None:
        if envelope.id:
            self.asked[peer, envelope.id] = type(envelope.message)
        super().to_coordinator(peer, envelope)

    def apply(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Send) and effect.envelope.reply_to:
                question = self.asked[effect.peer, effect.envelope.reply_to]
                self.kinds_answered.setdefault(question, set()).add(type(effect.envelope.message))
            elif isinstance(effect, fx.Send) and isinstance(effect.envelope.message, BeatHeard):
                self.kinds_answered.setdefault(Beat, set()).add(BeatHeard)
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
    world.ask(BillRequest())
    world.ask(SetQuota(Quota("user/x", workers=1)))
    world.ask(QuotaRequest())
    world.ask(StopExperiment("x"))
    world.ask(Shutdown())
    world.steps(20)
    asked: set[type[Message]] = {*get_args(WorkerMessage), *get_args(ClientMessage)}
    for question, answers in world.kinds_answered.items():
        expected = REPLIES.get(question, (Ack,))
        assert question in asked
        assert answers <= {*expected, Rejected}, question.__name__
        assert expected[0] in answers, question.__name__
    assert set(REPLIES) <= set(world.kinds_answered)
    assert BatchRequest in world.kinds_answered


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
