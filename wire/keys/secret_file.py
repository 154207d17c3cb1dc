"""The file of one secret key, readable by its owner alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from remuda.storage.atomic import write_bytes
from remuda.storage.untrusted import NotPrivateError, read_private
from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.keys.pair import KeyName, KeyPair, PublicKey, pair_of

MODE = 0o600
_MOST_BYTES = 4_096


class KeyFileError(ConnectionFileError):
    """A key, or the list of authorized keys, is missing, open to others or malformed; the text names the remedy, and
    never shows a secret."""


class _SecretFile(Struct, frozen=True):
    name: KeyName
    public: PublicKey
    secret: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


def write_secret(path: Path, pair: KeyPair, *, replace: bool = False) -> None:
    """Write the file, readable by this user alone at all times. Raises OSError: FileExistsError unless `replace`."""
    content = _SecretFile(pair.name, pair.public, pair.secret.hex())
    text = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    if replace:
        write_bytes(path, text, durable=True, mode=MODE)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    with open(descriptor, "wb") as file:
        file.write(text)


def read_secret(path: Path) -> KeyPair:
    """The pair of keys in this file. Raises KeyFileError."""
    try:
        content = read_private(path, most_bytes=_MOST_BYTES)
    except NotPrivateError as error:
        raise KeyFileError(str(error)) from None
    except OSError as error:
        raise KeyFileError(f"the key file {path} cannot be read: {error.strerror}") from None
    try:
        found = msgspec.json.decode(content, type=_SecretFile)
        pair = pair_of(found.name, bytes.fromhex(found.secret))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # what is wrong is not quoted: it may be the secret
        raise KeyFileError(f"{path} is not a key file: make one with `remuda keys new NAME`") from None
    if pair.public != found.public:
        raise KeyFileError(f"{path} is damaged: its public key does not belong to its secret key")
    return pair
