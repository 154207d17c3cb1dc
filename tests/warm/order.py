"""What a process is to be, sent over a socket together with its descriptors."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass

LENGTH_BYTES = 4
MOST_DESCRIPTORS = 64


@dataclass(frozen=True)
class Order:
    """Everything but the descriptors themselves."""

    command: list[str]
    cwd: str
    env: dict[str, str]
    descriptors: list[int]
    """The numbers that the sent descriptors are to have, in their order."""
    new_session: bool = False
    places: list[str] | None = None
    """Where it looks for modules; None: where the forker does."""
    site: str | None = None
    """A folder at the head of PYTHONPATH with a sitecustomize.py, which is run first."""

    def send(self, connection: socket.socket, descriptors: Sequence[int]) -> None:
        """Send it with one descriptor for each number."""
        body = json.dumps(asdict(self)).encode()
        socket.send_fds(connection, [len(body).to_bytes(LENGTH_BYTES)], descriptors)
        connection.sendall(body)


def received(connection: socket.socket) -> tuple[Order, list[int]] | None:
    """The next order and its descriptors; None once nobody can send any more."""
    length, descriptors, _, _ = socket.recv_fds(connection, LENGTH_BYTES, MOST_DESCRIPTORS)
    if not length:
        return None
    body = receive(connection, int.from_bytes(length))
    return Order(**json.loads(body)), list(descriptors)


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes; EOFError if the other side ends before."""
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError("the other side has ended")
        parts += part
    return bytes(parts)
