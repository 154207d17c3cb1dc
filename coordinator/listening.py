"""The address at which a coordinator listens."""

from __future__ import annotations

import contextlib

import zmq

from remuda.wire.sockets import RouterSocket

LOOPBACK = "tcp://127."
ANY_ADDRESS = "tcp://127.0.0.1:0"


class CannotListenError(Exception):
    """The address to listen on is not an address of this machine, or it is taken; the text says which and why."""


def listen(address: str) -> RouterSocket:
    """Listen at this address. Raises CannotListenError."""
    try:
        return RouterSocket(address)
    except zmq.ZMQError as error:
        raise CannotListenError(f"{address}: {error.strerror}") from error


def listen_again(before: str | None) -> RouterSocket:
    """Listen where the coordinator before this one listened, since its workers look there. An address that other
    machines can reach is used again only if it is given again."""
    if before is not None and before.startswith(LOOPBACK):
        with contextlib.suppress(CannotListenError):
            return listen(before)
    return listen(ANY_ADDRESS)
