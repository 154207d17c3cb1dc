"""The address by which others reach a coordinator that listens on every interface."""

from __future__ import annotations

import ipaddress
import socket

import psutil

ELSEWHERE = ("192.0.2.1", 9)
"""An address that no machine has (RFC 5737). The route to it is the route to other machines."""


def reachable(address: str, advertised: str | None = None) -> str:
    """`tcp://0.0.0.0:5555` with an address of this machine in place of 0.0.0.0; any other address as it is.

    The one of the interface that leads to other networks, else of any that is up, else loopback. `tcp://[::]:5555`
    takes connections over IPv6 and IPv4; it is replaced by an address of IPv4 if the machine has one. `advertised` (a
    host, or host:port) is what the user says instead."""
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
    """An address that others may reach: not one of loopback, nor one that counts on a single link only."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        for each in addresses:
            if name in up and each.family == family:
                address = ipaddress.ip_address(each.address.partition("%")[0])
                if not (address.is_loopback or address.is_link_local):
                    return str(address)
    return None
