"""32. Messages above the limit, a thousand connections that say nothing, HTTP and TLS at the door."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from uuid import uuid4

import pytest
import zmq

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.test_registration import link, register
from remuda.tests.keys import raw_dealer
from remuda.tests.patience import HANG_S, until
from remuda.tests.security.sizes import HALF_OPEN, within
from remuda.wire.codec import OF_STRANGERS
from remuda.wire.connection_file import read
from remuda.wire.sockets import worker_identity
from remuda.worker import descriptors

pytestmark = pytest.mark.processes

HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
TLS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
ZMTP_WITHOUT_KEYS = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
OTHER = (b"", HTTP, TLS, ZMTP_WITHOUT_KEYS, b"SSH-2.0-OpenSSH_9.6\r\n", bytes(64))


def test_a_worker_registers_all_the_same(herds: Herds) -> None:
    descriptors.raise_limit()
    herd = herds()
    herd.coordinator()
    connection = read(herd.connection_file)
    host, port = connection.address.removeprefix("tcp://").split(":")
    with ExitStack() as closing:
        for number in range(HALF_OPEN):
            stranger = closing.enter_context(socket.create_connection((host, int(port)), timeout=HANG_S))
            stranger.sendall(OTHER[number % len(OTHER)])
        context = closing.enter_context(zmq.Context())
        large = raw_dealer(context, connection, worker_identity(str(uuid4()), 1, "a" * 8, 0))
        large.linger = 0
        closing.callback(large.close)
        large.send_multipart([b"R\6", bytes(OF_STRANGERS.header_bytes + 1)])
        begin_s = time.monotonic()
        with link(herd, register(str(uuid4()))) as honest:
            honest.start(HANG_S)
            took_s = time.monotonic() - begin_s
            print(f"32: registered in {took_s:.3f} s beside {HALF_OPEN} strangers")
            assert within(took_s, 2.0)
            until(lambda: herd.status().coordinator.refusals.no_key >= HALF_OPEN // len(OTHER), "they are counted")
            assert len(herd.members()) == 1
    herd.shut_down()
