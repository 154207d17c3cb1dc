"""Ports for servers that cannot choose one themselves and tell which."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

_PORTS = range(20_000, 32_000)
"""Below those that the system gives to whoever asks for any. It gives such a one to each connection that is made, so it
could give it away before the server, which may start for seconds, listens at it."""


def free_ports(count: int) -> list[int]:
    """Different ports of this machine at which nobody listens now."""
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            with suppress(OSError):
                stack.enter_context(socket.create_server(("", port)))
                found.append(port)
            if len(found) == count:
                return found
    raise AssertionError("there are not enough free ports")
