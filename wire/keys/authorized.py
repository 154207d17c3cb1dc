"""Authorized keys of a coordinator: the file `authorized`, with a line per key with the right."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remuda.storage.untrusted import NotPrivateError, read_private
from remuda.wire.keys.pair import KeyName, KeyPair, PublicKey
from remuda.wire.keys.secret_file import KeyFileError
from remuda.wire.messages import Grant

Right = Literal["viewer", "operator", "worker"]
"""viewer: reads the status and the logs. operator: also submits, stops and shuts down. worker: sends messages of
workers, and nothing else."""
RIGHTS: tuple[Right, ...] = get_args(Right)
_MOST_BYTES = 4 << 20
_OPENING = """\
# Who may speak to the coordinator of this folder: public key, right (viewer, operator or worker), name.
# Change it with `remuda keys add`, `rotate` and `revoke`; a running coordinator reads it again.
"""
_FIELDS = re.compile(r"\s+")
_PURPOSE = b"remuda: grants of streams"


class Identity(Struct, frozen=True):
    """Name and right, as proved by a key."""

    name: str
    right: Right


def parse(text: str, place: str) -> dict[str, Identity]:
    """Return the identities of a list, by public key. Raises KeyFileError with the wrong line."""
    found: dict[str, Identity] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        public, identity = _entry(line, f"{place}:{number}")
        if public in found or any(identity.name == other.name for other in found.values()):
            raise KeyFileError(f"{place}:{number}: the key or the name {identity.name} stands there twice")
        found[public] = identity
    return found


def text_of(identities: Mapping[str, Identity]) -> str:
    """The list as text, in this order."""
    return _OPENING + "".join(f"{public} {each.right} {each.name}\n" for public, each in identities.items())


def read(path: Path) -> dict[str, Identity]:
    """The identities in this file, by public key. Raises KeyFileError."""
    try:
        content = read_private(path, most_bytes=_MOST_BYTES)
        return parse(content.decode("utf-8"), str(path))
    except NotPrivateError as error:
        raise KeyFileError(str(error)) from None
    except UnicodeDecodeError:
        raise KeyFileError(f"{path} is not a list of keys: it is not text") from None
    except OSError as error:
        raise KeyFileError(f"the list of keys {path} cannot be read: {error.strerror}") from None


def checked(name: str, public: str, right: str, place: str) -> Identity:
    """Return the identity with these parts. Raises KeyFileError with the place and the problem."""
    for value, kind, wanted in (
        (public, PublicKey, "a public key is 64 hexadecimal digits, as `remuda keys new` prints it"),
        (name, KeyName, "a name has letters, digits and . _ @ -, at most 64, and begins with a letter or digit"),
    ):
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise KeyFileError(f"{place}: {value[:80]!r}: {wanted}") from None
    if right not in RIGHTS:
        raise KeyFileError(f"{place}: {right[:80]!r} is no right: choose one of {', '.join(RIGHTS)}")
    return Identity(name, right)


def _entry(line: str, place: str) -> tuple[str, Identity]:
    fields = _FIELDS.split(line.strip())
    if len(fields) != 3:
        raise KeyFileError(f"{place}: a line is `public-key right name`, and this one has {len(fields)} parts")
    public, right, name = fields
    return public, checked(name, public, right, place)


class Authorized(Protocol):
    """Knows authorized keys; see AuthorizedKeys."""

    def who(self, public: str) -> Identity | None: ...
    def ask(self, public: str) -> Identity | None: ...


class AuthorizedKeys:
    """The list of a running coordinator: read by the first `look`, and again whenever the file has changed.

    `who` never waits for a disk, and any thread may call `look`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._identities: dict[str, Identity] = {}

    def who(self, public: str) -> Identity | None:
        """Return the identity of this public key; None for an unknown or revoked key."""
        return self._identities.get(public)

    def ask(self, public: str) -> Identity | None:
        """As `who`, but look for an unknown key in the newest file too: the key may be new."""
        known = self._identities.get(public)
        if known is None and _stamp(self._path) != self._stamp:
            with contextlib.suppress(KeyFileError):  # `look` will tell
                known = read(self._path).get(public)
                if known is not None:
                    self._identities = {**self._identities, public: known}
        return known

    def look(self) -> frozenset[str]:
        """Read the file again if it has changed; returns the names with another key or right than before.

        Raises KeyFileError, once for each change, if the file cannot be read: then the former list stays.
        """
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return frozenset()
        self._stamp = stamp
        before, self._identities = self._identities, read(self._path)
        return frozenset(each.name for public, each in before.items() if self._identities.get(public) != each)


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


class Grants:
    """Seals and checks grants with a secret derived from the coordinator's key: the coordinator and the stream server
    share it, and it survives restarts."""

    def __init__(self, server: KeyPair) -> None:
        self._secret = hmac.digest(server.secret, _PURPOSE, hashlib.sha256)

    def seal(self, grant: Grant) -> Grant:
        """Return the same grant with its seal."""
        return replace(grant, seal=self._seal_of(grant))

    def is_genuine(self, grant: Grant) -> bool:
        """True if the coordinator has sealed exactly this grant."""
        return hmac.compare_digest(grant.seal.encode(), self._seal_of(grant).encode())

    def _seal_of(self, grant: Grant) -> str:
        content = msgspec.msgpack.encode(replace(grant, seal=""))
        return hmac.digest(self._secret, content, hashlib.sha256).hex()
