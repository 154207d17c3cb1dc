"""The address at which a coordinator listens."""

from __future__ import annotations

import contextlib

import zmq

from remuda.wire.door import Door
from remuda.wire.router import RouterSocket

LOOPBACK = "tcp://127."
ANY_ADDRESS = "tcp://127.0.0.1:0"


class CannotListenError(Exception):
    """The address to listen on is not an address of this machine, or it is taken; the text says which and why."""

    option = "--bind"
    """What a user may change."""


class CannotListenForStreamsError(CannotListenError):
    """The same, of the port for the files of workers that do not see the runs folder."""

    option = "--stream-port"


def listen(address: str, door: Door) -> RouterSocket:
    """Listen at this address. Raises CannotListenError."""
    try:
        return RouterSocket(address, door)
    except zmq.ZMQError as error:
        raise CannotListenError(f"{address}: {error.strerror}") from error


def listen_again(before: str | None, door: Door) -> RouterSocket:
    """Listen where the coordinator before this one listened, since its workers look there. An address that other
    machines can reach is used again only if it is given again."""
    if before is not None and before.startswith(LOOPBACK):
        with contextlib.suppress(CannotListenError):
            return listen(before, door)
    return listen(ANY_ADDRESS, door)
