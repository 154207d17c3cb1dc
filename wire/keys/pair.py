"""A pair of CURVE keys. Its `repr` hides the secret key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import zmq
from msgspec import Meta
from zmq.utils import z85

from remuda.config.errors import Error

PublicKey = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""32 bytes as hexadecimal digits: unlike ZeroMQ's own text form, they need no quotes in a shell."""
KeyName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")]
"""The name of a key; for people, and in the logs."""


@dataclass(frozen=True)
class KeyPair:
    """A public key, its secret key, and a name for people."""

    name: str
    public: str
    """See PublicKey."""
    secret: bytes = field(repr=False)
    """32 bytes."""

    @property
    def public_bytes(self) -> bytes:
        """Public key in the form for ZeroMQ."""
        return bytes.fromhex(self.public)


def new_pair(name: str) -> KeyPair:
    """A new pair of keys, from the random numbers of the operating system. Raises NoCurveError."""
    require_curve()
    public, secret = zmq.curve_keypair()
    return KeyPair(name, z85.decode(public).hex(), z85.decode(secret))


def pair_of(name: str, secret: bytes) -> KeyPair:
    """Return the pair of a secret key of 32 bytes. Raises NoCurveError."""
    require_curve()
    return KeyPair(name, z85.decode(zmq.curve_public(z85.encode(secret))).hex(), secret)


class NoCurveError(Error):
    """This installation of pyzmq cannot encrypt."""


def require_curve() -> None:
    """Raise NoCurveError if ZeroMQ was built without CURVE: nothing is sent unencrypted instead."""
    if not zmq.has("curve"):
        raise NoCurveError(
            "this installation of pyzmq was built without CURVE, so it cannot encrypt: install pyzmq from PyPI"
        )
