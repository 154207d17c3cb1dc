"""31. Mutated messages: at the state machine, and at the door of a coordinator that others use meanwhile.

Some thousands by default, a million of each with `make security`.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import numpy as np
import psutil
import pytest
import zmq

from remuda.tests.coordinator.lies import Liar
from remuda.tests.coordinator.test_lies import Besieged
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd
from remuda.tests.keys import raw_dealer
from remuda.tests.patience import HANG_S, until
from remuda.tests.security.sizes import FRAMES, FRAMES_AT_THE_DOOR, within
from remuda.wire.codec import OF_STRANGERS, OF_WORKERS, CodecError, decode, encode
from remuda.wire.connection_file import read
from remuda.wire.sockets import worker_identity

MOST_GROWTH_BYTES = 20 << 20
P99_S = 0.05
AT_ONCE = 500
"""Messages between two questions of an honest client."""
HARMFUL = ("Submit", "StopExperiment", "Shutdown")
"""A key with the right to send these may end everything, and no test needs it."""


def sound_messages(seed: int) -> list[list[bytes]]:
    """The frames of messages of every kind."""
    liar = Liar(Besieged(1), seed)
    found = [liar.envelope(1) for _ in range(400)]
    return [[bytes(frame) for frame in encode(envelope)] for envelope in found if envelope is not None]


def mutated(sound: list[list[bytes]], chance: random.Random) -> list[bytes]:
    """One of them, changed in some places; now and then with a frame more or less."""
    frames = [bytearray(frame) for frame in chance.choice(sound)]
    for _ in range(chance.choice((1, 1, 2, 8))):
        mutate(frames, chance)
    match chance.randrange(40):
        case 0:
            frames.append(bytearray(chance.randbytes(9)))
        case 1:
            frames.pop()
        case _:
            pass
    return [bytes(frame) for frame in frames]


def mutate(frames: list[bytearray], chance: random.Random) -> None:
    frame = chance.choice(frames[1:] or frames)
    if not frame:
        return
    place = chance.randrange(len(frame))
    match chance.randrange(4):
        case 0:
            frame[place] ^= 1 << chance.randrange(8)
        case 1:
            frame[place] = chance.randrange(256)
        case 2:
            del frame[place : place + chance.randrange(1, 9)]
        case _:
            frame[place:place] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 5)))


def test_none_ends_anything_at_the_state_machine() -> None:
    world, chance = Besieged(1), random.Random(1)
    sound = sound_messages(1)
    understood = 0
    for number in range(FRAMES):
        try:
            envelope = decode(mutated(sound, chance), OF_WORKERS)
        except CodecError:
            continue
        understood += 1
        if type(envelope.message).__name__ not in HARMFUL:
            world.hear(world.peer(chance), envelope)
        if number % 20_000 == 0:
            world.step()
    assert understood > 0
    assert world.experiment().state == "running"


def is_refused(frames: list[bytes]) -> bool:
    """Whether a coordinator counts this message of a stranger as malformed."""
    try:
        decode(frames, OF_STRANGERS)
    except CodecError:
        return True
    return False


def to_send(sound: list[list[bytes]], chance: random.Random) -> Iterator[list[bytes]]:
    """Mutated messages without arrays, which strangers may not send, and which are answered in another way."""
    while True:
        frames = mutated(sound, chance)
        if len(frames) == 2 and len(frames[1]) < 100_000:
            yield frames


@pytest.mark.processes
def test_none_disturbs_anybody_at_the_door(herds: Herds) -> None:
    """Each one that is refused is counted; the coordinator does not grow, and an honest client is answered soon."""
    herd = herds()
    coordinator = psutil.Process(herd.coordinator().pid)
    chance = random.Random(31)
    messages = to_send([frames for frames in sound_messages(2) if len(frames) == 2], chance)
    refused, took_s = 0, list[float]()
    with ExitStack() as closing:
        client = closing.enter_context(herd.client())
        client.status()
        before = coordinator.memory_info().rss
        context = closing.enter_context(zmq.Context())
        socket = raw_dealer(context, read(herd.connection_file), worker_identity(str(uuid4()), 1, "a" * 8, 0))
        closing.callback(socket.close)
        socket.sndtimeo, socket.linger = int(1_000 * HANG_S), 0
        for number in range(FRAMES_AT_THE_DOOR):
            frames = next(messages)
            refused += is_refused(frames)
            socket.send_multipart(frames)
            while socket.poll(0):
                socket.recv_multipart()
            if number % AT_ONCE == 0:
                begin_s = time.monotonic()
                client.status()
                took_s.append(time.monotonic() - begin_s)
        said = counted(herd, socket, refused)
        grown = coordinator.memory_info().rss - before
    p99_s = float(np.quantile(took_s, 0.99))
    print(f"31: {refused} of {FRAMES_AT_THE_DOOR} refused, p99 {p99_s:.4f} s, {grown / 2**20:.1f} MiB")
    assert said == refused
    assert refused > FRAMES_AT_THE_DOOR // 2
    assert within(p99_s, P99_S)
    assert grown < MOST_GROWTH_BYTES
    herd.shut_down()


def counted(herd: Herd, socket: zmq.Socket[bytes], refused: int) -> int:
    """How many malformed messages the coordinator has counted, without those by which it is asked. It says so once in
    five seconds, in the order in which they come."""
    asked = 0
    told = re.compile(r"the (\d+)\. in all\): frame 0 is b'asking'".replace("asking", "ask"))

    def answers() -> list[int]:
        nonlocal asked
        socket.send_multipart([b"asking number %d" % asked, b""])
        asked += 1
        while socket.poll(10):
            socket.recv_multipart()
        return [int(number) for number in told.findall(herd.said())]

    first: list[int] = []

    def has_answered() -> bool:
        first[:] = answers()[:1]
        return bool(first)

    until(has_answered, "the coordinator says how many")
    assert refused < first[0] <= refused + asked, f"{first[0]} counted, {refused} refused and {asked} more"
    return refused
