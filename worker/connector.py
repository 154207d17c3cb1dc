"""Makes a worker's connections: the first one, and another when its coordinator has moved or does not know it."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex

from remuda.wire.connection_file import ConnectionFile
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
        self._process = token_hex(4)
        self._session = 0

    def connect(self) -> DealerSocket:
        """A new connection to the coordinator."""
        register = self._register
        identity = worker_identity(register.worker, register.incarnation, self._process, self._session)
        self._session += 1
        return DealerSocket(self._connection.address, identity)

    def coordinator_moved(self) -> bool:
        """Whether the connection file now names another coordinator; then `connect` connects to that one."""
        found = self._look_again()
        if found is None or found.coordinator == self._connection.coordinator:
            return False
        self._connection = found
        return True
