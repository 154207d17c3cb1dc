"""The small private file with the address and key of a coordinator, for workers and clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from remuda.config.errors import Error
from remuda.storage.atomic import write_bytes
from remuda.storage.untrusted import NotPrivateError, read_private, read_start
from remuda.wire.keys.pair import KeyName, PublicKey
from remuda.wire.messages import PROTOCOL_VERSION, Count, PathText, ShortText, Uuid

_MODE = 0o600
_MAX_BYTES = 64 << 10
_WAIT_STEP_S = 0.02
_LONGEST_STEP_S = 0.5


class ConnectionFileError(Error):
    """The connection file is missing, readable by others, or malformed; the text names the remedy."""


class HandedKey(Struct, frozen=True):
    """Secret key of the receiver of a connection file. Its `repr` hides the key."""

    name: KeyName
    secret: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]

    def __repr__(self) -> str:
        """Without the secret."""
        return f"HandedKey(name={self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        """Hide the key where rich prints the object."""
        return [("name", self.name)]


class ConnectionFile(Struct, frozen=True, omit_defaults=True):
    """Address and identity of a coordinator. Fields of later versions are ignored."""

    coordinator: Uuid
    address: Annotated[str, Meta(pattern=r"^tcp://[^\s/]{1,255}:[0-9]{1,5}$")]
    protocol: Count
    host: ShortText
    pid: Count
    epoch: Count
    """Grows with every start of a coordinator on the same runs folder."""
    server_key: PublicKey
    """The coordinator's public key: only who has the secret key can answer at this address."""
    keys_dir: PathText
    """Folder of the keys, on the coordinator's host. Processes without access to the folder use keys of their user."""
    runs_dir: PathText = ""
    """The runs folder, for workers on the coordinator's host. Empty in a file for other hosts."""
    own_key: HandedKey | None = None
    """Key in a file of `remuda keys invite`: its holder needs no other file to reach the coordinator."""

    @property
    def host_reached(self) -> str:
        """Host in the address."""
        return self.address.removeprefix("tcp://").rpartition(":")[0]


class _FormerFile(Struct, frozen=True):
    """Recognises the file of a Remuda without keys. Errors about other missing fields follow later."""

    coordinator: Uuid
    server_key: object = None
    own_key: object = None


def write(path: Path, connection: ConnectionFile) -> None:
    """Replace the file at once, readable and writable by its owner alone."""
    text = msgspec.json.format(msgspec.json.encode(connection), indent=2)
    write_bytes(path, text + b"\n", durable=False, mode=_MODE)


def may_replace(path: Path) -> bool:
    """Return True if `write` loses nothing: `path` is missing or empty, or a connection file of any version, also one
    that `read` refuses, without a key of `remuda keys invite`."""
    try:
        content = read_start(path, most_bytes=_MAX_BYTES)
        return not content or msgspec.json.decode(content, type=_FormerFile).own_key is None
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def read(path: Path) -> ConnectionFile:
    """Return the file's content. Raises ConnectionFileError for a missing or malformed file, or a
    file open to others."""
    try:
        content = read_private(path, most_bytes=_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConnectionFileError(
            f"{path} does not exist: no coordinator runs there (start one with `remuda coordinator`)"
        ) from None
    except NotPrivateError as error:
        raise ConnectionFileError(str(error)) from None
    except OSError as error:
        raise ConnectionFileError(f"{path} cannot be read: {error.strerror}") from error
    return _parse(path, content)


def wait_for(path: Path, deadline_s: float, *, given_up: Callable[[], bool] = lambda: False) -> ConnectionFile:
    """As `read`, but wait up to `deadline_s` seconds for a missing file, or until `given_up`, which is called often."""
    begun_s = time.monotonic()
    while not path.exists():
        waited_s = time.monotonic() - begun_s
        if waited_s >= deadline_s or given_up():
            raise ConnectionFileError(f"{path} did not appear within {deadline_s:g} s: is the coordinator running?")
        time.sleep(min(max(_WAIT_STEP_S, waited_s / 20), _LONGEST_STEP_S, max(deadline_s - waited_s, 0.0)))
    return read(path)


def _parse(path: Path, content: bytes) -> ConnectionFile:
    if len(content) > _MAX_BYTES:
        raise ConnectionFileError(f"{path} is larger than {_MAX_BYTES} bytes: it is not a connection file")
    try:
        if not msgspec.json.decode(content, type=_FormerFile).server_key:
            raise ConnectionFileError(
                f"{path} has no server_key: a Remuda without keys wrote it, and this one does not speak without them; "
                "install the same version of Remuda on both sides and start the coordinator again"
            )
        connection = msgspec.json.decode(content, type=ConnectionFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConnectionFileError(f"{path} is not a connection file: {error}") from error
    if connection.protocol != PROTOCOL_VERSION:
        raise ConnectionFileError(
            f"{path}: the coordinator speaks protocol {connection.protocol}, this Remuda protocol {PROTOCOL_VERSION}; "
            "install the same version of Remuda on both sides"
        )
    return connection
