"""The tokens of links: which one gives which right.

Tokens follow from the key of the user who runs the coordinator. So they stay over a restart of coordinator and page,
end with `remuda keys rotate operator`, and are kept in no file.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Literal

from remuda.wire.keys.pair import KeyPair

PageRight = Literal["viewer", "operator"]
"""As those of keys: a viewer reads, an operator also acts."""
_PURPOSE = "remuda: token of the page, right "
_SCHEME = "bearer"
_BYTES = 32


@dataclass(frozen=True)
class Tokens:
    """One token for each right; they appear in no text that Python makes of them."""

    viewer: str = field(repr=False)
    operator: str = field(repr=False)

    @staticmethod
    def of(key: KeyPair) -> Tokens:
        """Those that follow from this key."""
        return Tokens(_token(key, "viewer"), _token(key, "operator"))

    @staticmethod
    def fresh() -> Tokens:
        """New ones, from the random numbers of the operating system."""
        return Tokens(secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES))

    def right(self, authorization: str | None) -> PageRight | None:
        """The right that the header `Authorization: Bearer TOKEN` gives; None for any other text, or none."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != _SCHEME:
            return None
        shown = token.strip().encode("utf-8", "surrogateescape")
        if hmac.compare_digest(shown, self.operator.encode()):
            return "operator"
        return "viewer" if hmac.compare_digest(shown, self.viewer.encode()) else None


def link(address: str, token: str) -> str:
    """The link that opens a page. What follows `#` stays in the browser: no server and no log gets it."""
    return f"{address}/#token={token}"


def _token(key: KeyPair, right: PageRight) -> str:
    digest = hmac.digest(key.secret, f"{_PURPOSE}{right}".encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
