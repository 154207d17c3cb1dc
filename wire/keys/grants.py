"""Grants: what the coordinator seals for a worker, so that the stream server believes it without asking."""

from __future__ import annotations

import hashlib
import hmac

import msgspec
from msgspec.structs import replace

from remuda.wire.keys.pair import KeyPair
from remuda.wire.messages import Grant

_PURPOSE = b"remuda: grants of streams"


class Grants:
    """Seals and checks with a secret that follows from the coordinator's key, so that both ends of a runs folder have
    it, and it stays when either is started again."""

    def __init__(self, server: KeyPair) -> None:
        self._secret = hmac.digest(server.secret, _PURPOSE, hashlib.sha256)

    def seal(self, grant: Grant) -> Grant:
        """The same grant with its seal."""
        return replace(grant, seal=self._seal_of(grant))

    def is_genuine(self, grant: Grant) -> bool:
        """Whether the coordinator has sealed exactly this."""
        return hmac.compare_digest(grant.seal.encode(), self._seal_of(grant).encode())

    def _seal_of(self, grant: Grant) -> str:
        content = msgspec.msgpack.encode(replace(grant, seal=""))
        return hmac.digest(self._secret, content, hashlib.sha256).hex()
