"""Each right allows its messages and no others; who has not the right leaves no trace."""

from __future__ import annotations

from typing import get_args

import pytest

from remuda.coordinator import effects as fx
from remuda.coordinator.events import Received
from remuda.coordinator.rights import MAY_SAY
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.tests.keys import OPERATOR, WORKER
from remuda.wire.codec import Envelope
from remuda.wire.keys.authorized import RIGHTS, Identity
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    AnyMessage,
    Beat,
    Bye,
    ClientMessage,
    LogRequest,
    Prioritize,
    RefusalCounts,
    Register,
    Rejected,
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
    assert MAY_SAY["viewer"] == {StatusRequest, LogRequest, Ack}
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
    assert world.coordinator.peers_of({who.name}) == [], "no conversation is kept"
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
