"""Keys for tests: everything that speaks over a socket without a real coordinator's folder gets its keys here."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import zmq

from remuda.coordinator.rights import MAY_SAY
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.door import Door
from remuda.wire.keys.authorized import AuthorizedKeys, Identity
from remuda.wire.keys.folder import FOLDER, CallerKeys, Holder, KeysFolder, caller_keys
from remuda.wire.messages import PROTOCOL_VERSION, AnyMessage
from remuda.wire.router import RouterSocket
from remuda.wire.sockets import DealerSocket, show_keys

COORDINATOR = "01234567-89ab-cdef-0123-456789abcdef"
OPERATOR = Identity("operator", "operator")
WORKER = Identity("worker", "worker")


def somebody_for(message: AnyMessage) -> Identity:
    """Somebody whose right allows this message."""
    return Identity("somebody", next((right for right, kinds in MAY_SAY.items() if type(message) in kinds), "worker"))


@cache
def keys_folder() -> KeysFolder:
    """The keys of all coordinators that this test process plays itself."""
    path = Path(tempfile.mkdtemp(prefix="remuda-test-keys-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    folder = KeysFolder(path / FOLDER)
    folder.save()
    return folder


def door() -> Door:
    """Lets in whoever is in the list of `keys_folder`."""
    authorized = AuthorizedKeys(keys_folder().authorized)
    authorized.look()
    return Door(keys_folder().server, authorized)


def router(address: str = "tcp://127.0.0.1:0") -> RouterSocket:
    """A coordinator's socket."""
    return RouterSocket(address, door())


def connection_to(address: str, *, coordinator: str = COORDINATOR) -> ConnectionFile:
    """The connection file of a coordinator that the test plays."""
    folder = keys_folder()
    return ConnectionFile(
        coordinator, address, PROTOCOL_VERSION, "here", 1, 1, folder.server.public, str(folder.path.absolute())
    )


def dealer(address: str, identity: bytes, holder: Holder = "worker") -> DealerSocket:
    """A worker's or client's socket, for a coordinator that the test plays."""
    return DealerSocket(address, identity, caller(holder))


def caller(holder: Holder = "worker") -> CallerKeys:
    """The keys to speak to it."""
    return caller_keys(connection_to("tcp://127.0.0.1:9"), holder)


def raw_dealer(
    context: zmq.Context[zmq.Socket[bytes]], connection: ConnectionFile, identity: bytes
) -> zmq.Socket[bytes]:
    """A bare ZeroMQ socket that is let in as a worker, and sends whatever it is given."""
    socket = context.socket(zmq.DEALER)
    socket.routing_id = identity
    show_keys(socket, caller_keys(connection, "worker"))
    socket.connect(connection.address)
    return socket
