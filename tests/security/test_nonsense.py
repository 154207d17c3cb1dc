"""5. Who sends nonsense in the place of a registration, or work for a run that there is not."""

from __future__ import annotations

from uuid import uuid4

import pytest
import zmq

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.test_registration import register
from remuda.tests.keys import raw_dealer
from remuda.tests.patience import until
from remuda.wire.codec import Envelope, encode
from remuda.wire.connection_file import read
from remuda.wire.sockets import worker_identity

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    "wrong", [b"overseer", b"no-uuid", b"garbage"], ids=["bad role", "bad uuid", "not a message at all"]
)
def test_nonsense_is_counted_and_changes_nothing(herds: Herds, wrong: bytes) -> None:
    herd = herds()
    herd.coordinator()
    uuid = str(uuid4())
    frames = [bytes(frame) for frame in encode(Envelope(1, 0, 1, register(uuid)))]
    swap = {b"overseer": (b"collector", b"overseers"), b"no-uuid": (uuid.encode(), b"x" * 36)}
    old, new = swap.get(wrong, (frames[-1], b"\xc1" * 9))
    context = zmq.Context()
    socket = raw_dealer(context, read(herd.connection_file), worker_identity(uuid, 1, "a" * 8, 0))
    socket.linger = 1_000
    socket.send_multipart([frame.replace(old, new) for frame in frames])
    try:
        until(lambda: "(the 1. in all)" in herd.said(), "it is counted")
    finally:
        socket.close()
        context.term()
    assert herd.members() == []
    herd.shut_down()
