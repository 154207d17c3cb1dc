"""Keys of one runs folder, and the key that a client or a worker shows to its coordinator.

The folder has the coordinator's key, the keys of its user, and the list of authorized keys. Where the folder cannot be
seen, a client or a worker shows its user's own key.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Literal

from msgspec import Struct

from remuda.storage.atomic import write_text
from remuda.storage.existing_folder import make_private
from remuda.storage.lock import LockTimeout, holding
from remuda.storage.untrusted import NotPrivateError, check_private_folder
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.keys.authorized import Identity, Right, checked, read, text_of
from remuda.wire.keys.pair import KeyPair, new_pair, pair_of
from remuda.wire.keys.secret_file import MODE, KeyFileError, read_secret, write_secret

FOLDER = ".keys"
"""Name of the folder."""
SERVER = "coordinator"
"""The coordinator's key, known to workers and clients. It survives restarts."""
NEXT_SERVER = "coordinator.next"
"""The coordinator's key after its next start. Until then every peer needs the former key."""
OWN: dict[str, Right] = {"operator": "operator", "worker": "worker"}
"""Keys of the user who starts the coordinator, and their rights."""
_USERS = {"operator": "command", "worker": "worker"}
"""Users of the own keys, for people."""
KEY_FILE = "REMUDA_KEY_FILE"
"""The environment variable with the path of the user's own key file."""
Holder = Literal["operator", "worker"]
_RIGHT_TO_ASK_FOR = {"operator": "viewer", "worker": "worker"}
_LIST = "authorized"
_LOCK_DEADLINE_S = 10.0


class KeysFolder:
    """A folder `.keys` (mode 0700): the secrets `coordinator`, `operator` and `worker` (0600), and the list
    `authorized`."""

    def __init__(self, path: Path) -> None:
        """Writes nothing. Raises KeyFileError if an existing folder is open to others, or its key is damaged."""
        self.path = path
        self._new: list[KeyPair] = []
        self._turned_over = False
        if self._exists():
            self.server = read_secret(path / SERVER)
            return
        self.server = new_pair(SERVER)
        self._new = [self.server, *map(new_pair, OWN)]

    @property
    def authorized(self) -> Path:
        """Path of the list of authorized keys."""
        return self.path / _LIST

    @property
    def is_new(self) -> bool:
        """True if its keys are not on the disk yet."""
        return bool(self._new)

    def turn_over(self) -> None:
        """Use the key from `rotate`, if any; for a coordinator that starts. `save` writes the change, so that a
        coordinator that fails to start changes nothing. Raises KeyFileError."""
        if (self.path / NEXT_SERVER).exists():
            self.server = read_secret(self.path / NEXT_SERVER)
            self._turned_over = True

    def save(self) -> None:
        """Write new keys to the disk; existing keys stay. Raises KeyFileError if another process has just made keys,
        and OSError."""
        if self._turned_over:
            self._save_turned_over()
        if not self._new:
            return
        make_private(self.path)
        with locked(self.path):
            if (self.path / SERVER).exists():
                raise KeyFileError(f"another process has just made keys in {self.path}: start again")
            others = read(self.authorized) if self.authorized.exists() else {}
            own = {pair.public: Identity(pair.name, OWN[pair.name]) for pair in self._new[1:]}
            self._write(own | {public: each for public, each in others.items() if each.name not in OWN})
            for pair in reversed(self._new):  # the coordinator's last: with it the folder is complete
                write_secret(self.path / pair.name, pair, replace=True)
        self._new = []

    def listed(self) -> dict[str, Identity]:
        """Return all authorized keys by public key. Raises KeyFileError."""
        return read(self.authorized)

    def add(self, name: str, public: str, right: str) -> Identity:
        """Let the owner of this public key in. Raises KeyFileError, and OSError."""
        identity = checked(name, public, right, "keys add")
        if name == SERVER:
            raise KeyFileError(f"the name {name} is the coordinator's own: choose another")
        with locked(self.path):
            known = self.listed()
            if any(each.name == name for each in known.values()):
                raise KeyFileError(f"there is a key called {name}: choose another name, or `remuda keys rotate {name}`")
            if public in known:
                raise KeyFileError(f"this key is there already, as {known[public].name}")
            self._write({**known, public: identity})
        return identity

    def revoke(self, name: str) -> Identity:
        """Refuse the owner of the key with this name from now on. Raises KeyFileError, also for the folder's own keys:
        no command can add these again. Raises OSError."""
        if name in OWN:
            raise KeyFileError(
                f"the key {name} is your own, and without it no {_USERS[name]} of yours reaches the coordinator: "
                f"`remuda keys rotate {name}` replaces the key"
            )
        _public_of(name, self.listed(), self.authorized)  # before the lock, which would make a folder that is gone
        with locked(self.path):
            known = self.listed()
            public = _public_of(name, known, self.authorized)
            identity = known.pop(public)
            self._write(known)
        return identity

    def rotate(self, name: str, public: str | None = None) -> str:
        """Replace a key; returns the new public key. Without `public`, a key of this folder is made again; the
        coordinator's own key counts from its next start. Raises KeyFileError, and OSError."""
        if name == SERVER and public is None:
            following = new_pair(SERVER)
            with locked(self.path):
                write_secret(self.path / NEXT_SERVER, following, replace=True)
            return following.public
        _public_of(name, self.listed(), self.authorized)  # before the lock, which would make a folder that is gone
        with locked(self.path):
            known = self.listed()
            former = _public_of(name, known, self.authorized)
            if public is None and name not in OWN:
                raise KeyFileError(
                    f"the secret key of {name} does not lie in {self.path}: its owner makes another with `remuda keys "
                    f"new {name}`, and you give its public key: `remuda keys rotate {name} PUBLIC-KEY`"
                )
            pair = new_pair(name) if public is None else None
            new = public if pair is None else pair.public
            assert new is not None
            if new in known:
                raise KeyFileError(f"this key is there already, as {known[new].name}")
            identity = checked(name, new, known[former].right, "keys rotate")
            # the list first: who still shows the former key reads its file again when this lock is released
            self._write({(new if key == former else key): each for key, each in known.items()} | {new: identity})
            if pair is not None:
                write_secret(self.path / name, pair, replace=True)
        return new

    def _exists(self) -> bool:
        try:
            check_private_folder(self.path)
        except (FileNotFoundError, NotADirectoryError):  # where it cannot be made, `save` tells
            return False
        except NotPrivateError as error:
            raise KeyFileError(str(error)) from None
        return (self.path / SERVER).exists()

    def _save_turned_over(self) -> None:
        with locked(self.path):
            write_secret(self.path / SERVER, self.server, replace=True)
            following = self.path / NEXT_SERVER
            if following.exists() and read_secret(following).public == self.server.public:
                following.unlink()
        self._turned_over = False

    def _write(self, identities: dict[str, Identity]) -> None:
        write_text(self.authorized, text_of(identities), durable=True, mode=MODE)


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Keep other processes from changing the keys of this folder. Raises KeyFileError, and OSError."""
    try:
        with holding(folder / ".lock", deadline_s=_LOCK_DEADLINE_S):
            yield
    except LockTimeout as error:
        raise KeyFileError(str(error)) from None


def _public_of(name: str, known: dict[str, Identity], place: Path) -> str:
    for public, each in known.items():
        if each.name == name:
            return public
    names = ", ".join(each.name for each in known.values()) or "none"
    raise KeyFileError(f"no key in {place} is called {name[:80]!r}: the names are {names}")


class HerdKeys:
    """Entries in the coordinator's list `authorized`, with the right of a worker, for as long as this is open."""

    def __init__(self, keys_dir: Path) -> None:
        """Raises KeyFileError."""
        self._folder = KeysFolder(keys_dir)
        self._public: dict[str, str] = {}
        """The authorized keys by name."""

    def let_in(self, name: str, public_key: str) -> None:
        """Let in who has this key, and who had this name before no more. Raises KeyFileError."""
        former = self._public.get(name)
        if former == public_key:  # asked again: the answer was lost
            return
        if former is None:
            self._folder.add(name, public_key, "worker")
        else:
            self._folder.rotate(name, public_key)
        self._public[name] = public_key

    def let_out(self, name: str) -> None:
        """Revoke the key of this name. The folder may be gone together with its coordinator."""
        if self._public.pop(name, None) is not None:
            with contextlib.suppress(KeyFileError, OSError):
                self._folder.revoke(name)

    @property
    def names(self) -> list[str]:
        """Names with an authorized key."""
        return list(self._public)

    def __enter__(self) -> HerdKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Revoke all keys."""
        for name in self.names:
            self.let_out(name)


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
