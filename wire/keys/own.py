"""The key that a client or a worker shows to a coordinator: from the coordinator's folder, or the user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from msgspec import Struct

from remuda.wire.connection_file import ConnectionFile
from remuda.wire.keys.folder import SERVER, locked
from remuda.wire.keys.pair import KeyPair, pair_of
from remuda.wire.keys.secret_file import KeyFileError, read_secret

KEY_FILE = "REMUDA_KEY_FILE"
"""The environment variable with the path of the user's own key file."""
Holder = Literal["operator", "worker"]
_RIGHT_TO_ASK_FOR = {"operator": "viewer", "worker": "worker"}


class CallerKeys(Struct, frozen=True):
    """Keys for the connection to one coordinator."""

    server: str
    """The coordinator's public key: no other process can answer."""
    own: KeyPair


def caller_keys(connection: ConnectionFile, holder: Holder) -> CallerKeys:
    """Return the keys for this coordinator: the key in the connection file, if any; else the key `holder` of the
    coordinator's own folder, if this process sees the folder; else the key in the file $REMUDA_KEY_FILE. Raises
    KeyFileError."""
    if connection.own_key is not None:
        own = pair_of(connection.own_key.name, bytes.fromhex(connection.own_key.secret))
        return CallerKeys(connection.server_key, own)
    folder = Path(connection.keys_dir)
    if _is_of(folder, connection):
        return CallerKeys(connection.server_key, read_secret(folder / holder))
    given = os.environ.get(KEY_FILE)
    if given is None:
        raise KeyFileError(
            f"there is no key for the coordinator at {connection.address}: its keys in {folder} cannot be seen here, "
            f"and {KEY_FILE} is not set. Make a key with `remuda keys new NAME`, which says what to do with it, or ask "
            "for a connection file that `remuda keys invite` has made"
        )
    return CallerKeys(connection.server_key, read_secret(Path(given)))


def keys_again(connection: ConnectionFile, holder: Holder) -> CallerKeys:
    """As `caller_keys`, after a refusal: waits for a key replacement in progress. Raises KeyFileError."""
    folder = Path(connection.keys_dir)
    if not _is_of(folder, connection):
        return caller_keys(connection, holder)
    with locked(folder):
        return caller_keys(connection, holder)


def not_authorized(connection: ConnectionFile, keys: CallerKeys, holder: Holder) -> str:
    """Return the error text for a key that this coordinator does not know."""
    name, public = keys.own.name, keys.own.public
    return (
        f"the coordinator at {connection.address} does not know your key {name}: it was revoked, or never added to "
        f"{connection.keys_dir}/authorized. Ask its operator for `remuda keys add {name} {public} --right "
        f"{_RIGHT_TO_ASK_FOR[holder]}`"
    )


def no_exchange(connection: ConnectionFile) -> str:
    """Return the error text for an address without the coordinator's key."""
    return (
        f"whoever listens at {connection.address} does not have the key {connection.server_key[:16]}… of the "
        "coordinator: the connection file may be an old copy, or another program has taken the address"
    )


def _is_of(folder: Path, connection: ConnectionFile) -> bool:
    """True if these are the keys of this coordinator, not of a coordinator on another host."""
    if not os.access(folder / SERVER, os.R_OK):
        return False
    return read_secret(folder / SERVER).public == connection.server_key
