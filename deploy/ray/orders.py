"""What an actor tells the herd of itself, and what it is told to do: all that passes through Ray, and no secret."""

from __future__ import annotations

from msgspec import Struct

from remuda.wire.keys.pair import PublicKey


class Introduction(Struct, frozen=True):
    """An actor's process, as soon as it runs."""

    public_key: PublicKey
    """Of a pair that this process has made; the secret key never leaves it."""
    host: str
    pid: int
    version: str
    """Of Remuda."""


class Order(Struct, frozen=True):
    """The worker that an actor's process is to be."""

    uuid: str
    incarnation: int
    former_exit: str
    """How the incarnation before ended, for people."""
    connection_path: str
    """The connection file. Hosts that cannot see it use the copy."""
    connection: str
    """Its content: an address and the coordinator's public key."""
    runs_dir: str
    """The runs folder; a worker on a host that does not see it works by streams."""
    coordinator_timeout_s: float
    profile: str | None
