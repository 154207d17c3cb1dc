"""The address of a coordinator, the connection file, and the token in the runs folder."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
import socket
from pathlib import Path

import psutil
import zmq

from remuda.coordinator.settings import Settings
from remuda.storage.folder_token import FolderToken
from remuda.storage.lock import FolderOwnedError, Ownership
from remuda.storage.run_folder import RUNS_OWNER
from remuda.wire import connection_file
from remuda.wire.connection_file import ConnectionFile, ConnectionFileError
from remuda.wire.door import Door
from remuda.wire.keys.folder import KeysFolder
from remuda.wire.messages import PROTOCOL_VERSION
from remuda.wire.router import RouterSocket

LOOPBACK = "tcp://127."
ANY_ADDRESS = "tcp://127.0.0.1:0"
ELSEWHERE = ("192.0.2.1", 9)
"""An address of no machine (RFC 5737), reached by the route to remote machines."""


class CannotListenError(Exception):
    """The address to listen on does not belong to this machine, or is taken; the text names address and cause."""

    option = "--bind"
    """Option that a user may change."""


class CannotListenForStreamsError(CannotListenError):
    """The same for the port of file streams."""

    option = "--stream-port"


class ConnectionFileTakenError(Exception):
    """The connection file belongs to another, living coordinator (the text names the process), or is a file of another
    kind."""


def listen(address: str, door: Door) -> RouterSocket:
    """Listen at this address. Raises CannotListenError."""
    try:
        return RouterSocket(address, door)
    except zmq.ZMQError as error:
        raise CannotListenError(f"{address}: {error.strerror}") from error


def listen_again(before: str | None, door: Door) -> RouterSocket:
    """Listen at the previous coordinator's address, where workers look for the coordinator. An address within reach of
    remote machines is used again only if given again."""
    if before is not None and before.startswith(LOOPBACK):
        with contextlib.suppress(CannotListenError):
            return listen(before, door)
    return listen(ANY_ADDRESS, door)


class PublishedFiles:
    """Files written at the start of the coordinator, and removed at its end."""

    def __init__(self, settings: Settings, id: str) -> None:
        """Nothing is written."""
        self._settings, self._id = settings, id
        self.token = FolderToken(settings.runs_dir, id)

    def require_free(self) -> None:
        """Raise ConnectionFileTakenError for the connection file of a living coordinator of another runs folder: its
        clients and workers would come here. Raise the error for a file of another kind, too. Call before anything is
        written."""
        path = self._settings.connection_file
        if not connection_file.may_replace(path):
            raise ConnectionFileTakenError(f"{path} is no connection file of a coordinator, and would be overwritten")
        try:
            keys_dir = Path(connection_file.read(path).keys_dir)
        except ConnectionFileError:
            return
        owner = keys_dir.parent / RUNS_OWNER
        if keys_dir != self._settings.keys_dir.absolute() and owner.exists():
            try:
                Ownership(owner).release()
            except FolderOwnedError as error:
                raise ConnectionFileTakenError(f"{path} leads to another coordinator: {error}") from error

    def put_token(self) -> None:
        """Put the token into the runs folder, which keeps the token over a restart. It replaces the token of the former
        coordinator.

        The connection file of a killed coordinator still exists; this process owns the runs now. Raises OSError.
        """
        if not self._settings.persistent:
            return
        with contextlib.suppress(ConnectionFileError):
            former = connection_file.read(self._settings.connection_file).coordinator
            FolderToken(self._settings.runs_dir, former).remove()
        self.token.write()

    def put_connection_file(self, address: str, epoch: int, keys: KeysFolder) -> None:
        """Publish the address. Raises OSError."""
        connection_file.write(
            self._settings.connection_file,
            ConnectionFile(
                coordinator=self._id,
                address=address,
                protocol=PROTOCOL_VERSION,
                host=platform.node(),
                pid=os.getpid(),
                epoch=epoch,
                server_key=keys.server.public,
                keys_dir=str(keys.path.absolute()),
                runs_dir=str(self._settings.runs_dir.absolute()),
            ),
        )

    def remove_connection_file(self) -> None:
        """Remove the file, unless another coordinator has replaced it."""
        path = self._settings.connection_file
        with contextlib.suppress(ConnectionFileError):
            if connection_file.read(path).coordinator == self._id:
                path.unlink(missing_ok=True)


def reachable(address: str, advertised: str | None = None) -> str:
    """Return `tcp://0.0.0.0:5555` with an address of this machine in place of 0.0.0.0; every remaining address
    unchanged.

    The address is taken from the interface on the route to remote networks, else from an active interface, else
    loopback. `tcp://[::]:5555` takes connections over IPv6 and IPv4; an IPv4 address of the machine, if any, replaces
    `[::]`. `advertised` (a host, or host:port) overrides the result.
    """
    host, port = host_and_port(address)
    if advertised is not None:
        given, _, given_port = advertised.rpartition(":") if _has_port(advertised) else (advertised, "", port)
        return f"tcp://{given}:{given_port}"
    if not _is_any(host):
        return address
    found = _towards_others() or _any_interface(socket.AF_INET)
    if found is None and ":" in host:
        found = f"[{_any_interface(socket.AF_INET6) or '::1'}]"
    return f"tcp://{found or '127.0.0.1'}:{port}"


def host_and_port(address: str) -> tuple[str, str]:
    """The two parts of tcp://host:port."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, port


def _has_port(advertised: str) -> bool:
    return advertised.endswith(tuple("0123456789")) and (
        advertised.count(":") == 1 or (advertised.startswith("[") and "]:" in advertised)
    )


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _towards_others() -> str | None:
    """Ask the routing table; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ELSEWHERE)
        except OSError:
            return None
        host: str = probe.getsockname()[0]
        return host


def _any_interface(family: socket.AddressFamily) -> str | None:
    """Return an address within reach of others: neither loopback nor link-local."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        for each in addresses:
            if name in up and each.family == family:
                address = ipaddress.ip_address(each.address.partition("%")[0])
                if not (address.is_loopback or address.is_link_local):
                    return str(address)
    return None
