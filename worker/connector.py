"""Makes a worker's connections: the first one, and another when its coordinator has moved or does not know it."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex

from remuda.wire.connection_file import ConnectionFile
from remuda.wire.keys.own import CallerKeys, caller_keys, keys_again, no_exchange, not_authorized
from remuda.wire.keys.secret_file import KeyFileError
from remuda.wire.messages import Register
from remuda.wire.sockets import DealerSocket, worker_identity


class Connector:
    """Each connection has a new identity, so that no message of a former connection is mistaken for one of this."""

    def __init__(
        self, connection: ConnectionFile, register: Register, look_again: Callable[[], ConnectionFile | None]
    ) -> None:
        """`look_again` returns the present connection file of the coordinator, or None if there is none."""
        self._connection = connection
        self._register = register
        self._look_again = look_again
        self._process = token_hex(8)
        self._session = 0
        self._keys: CallerKeys | None = None

    @property
    def connection(self) -> ConnectionFile:
        """That of the newest coordinator."""
        return self._connection

    def connect(self) -> DealerSocket:
        """A new connection to the coordinator. Raises KeyFileError if there is no key for it."""
        register = self._register
        identity = worker_identity(register.worker, register.incarnation, self._process, self._session)
        self._session += 1
        self._keys = self._newest_keys()
        return DealerSocket(self._connection.address, identity, self._keys)

    def keys_changed(self) -> bool:
        """Whether `connect` would show another key now than it did last time. Raises KeyFileError."""
        return keys_again(self._connection, "worker") != self._keys

    def _newest_keys(self) -> CallerKeys:
        """Those in the files; where they cannot be read, as while a file system is away, the former ones, if they are
        for the same coordinator."""
        try:
            return caller_keys(self._connection, "worker")
        except KeyFileError:
            if self._keys is None or self._keys.server != self._connection.server_key:
                raise
            return self._keys

    @property
    def not_authorized(self) -> str:
        """What to say if the coordinator does not know the key."""
        return not_authorized(self._connection, self._newest_keys(), "worker")

    @property
    def no_exchange(self) -> str:
        """What to say if nobody at the address has the coordinator's key."""
        return no_exchange(self._connection)

    def coordinator_moved(self) -> bool:
        """Whether the connection file now names another coordinator; then `connect` connects to that one."""
        found = self._look_again()
        if found is None or found.coordinator == self._connection.coordinator:
            return False
        self._connection = found
        return True
