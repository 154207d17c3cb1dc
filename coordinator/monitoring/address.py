"""Address of health and metrics."""

from __future__ import annotations

import errno
import os
import socket
import time

LOOPBACK = "127.0.0.1"
BACKLOG_CONNECTIONS = 512
"""Connections held by the operating system until accepted. Beyond, a client tries again after a second."""
TAKEN_S = 2.0
"""Time to wait for a taken port: the process of a killed coordinator releases the port soon."""
_STEP_S = 0.05
_ANOTHER = "choose an address of this machine and a free port"


class HttpAddressError(Exception):
    """Not an address, or not free to listen on; the text names address and cause."""


def parse(text: str) -> tuple[str, int]:
    """Host and port of `9300`, `0.0.0.0:9300` or `[::1]:9300`; without a host, the loopback interface. Raises
    HttpAddressError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    valid = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
    if not valid or (not host and text != port):
        raise HttpAddressError(
            f"{text!r}: an address is a port or host:port, such as 9300 or 0.0.0.0:9300 (port 0: any free port)"
        )
    return host or LOOPBACK, int(port)


def listen(text: str, *, patience_s: float = TAKEN_S) -> socket.socket:
    """Return a socket that listens at this address, at [::] for IPv4, too. Raises HttpAddressError."""
    host, port = parse(text)
    end_s = time.monotonic() + patience_s
    while True:
        try:
            return _bound(host, port)
        except socket.gaierror as error:
            raise HttpAddressError(f"{text}: {error.strerror}; {_ANOTHER}") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= end_s:
                raise HttpAddressError(f"{text}: {os.strerror(error.errno or 0)}; {_ANOTHER}") from error
        time.sleep(_STEP_S)


def _bound(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server(address[:2], family=family, backlog=BACKLOG_CONNECTIONS, dualstack_ipv6=both)


def url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """True if only this machine can connect."""
    host = str(listener.getsockname()[0])
    return host == "::1" or host.startswith("127.")


def addresses_for_people(listener: socket.socket) -> list[str]:
    """Return lines with the addresses of health and metrics."""
    lines = [f"health and metrics: {url(listener)}/health and {url(listener)}/metrics"]
    if not is_loopback(listener):
        lines.append("whoever reaches that port may read them: let nothing but your monitoring through to it")
    return lines
