"""The address: loopback unless told otherwise, and a sentence where it cannot be used."""

from __future__ import annotations

import socket

import pytest

from remuda.coordinator.monitoring.address import HttpAddressError, is_loopback, listen, parse, url
from remuda.tests.ipv6 import needs_ipv6
from remuda.tests.patience import HANG_S


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9300", ("127.0.0.1", 9300)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9300", ("0.0.0.0", 9300)),
        ("node7:9300", ("node7", 9300)),
        ("[::1]:9300", ("::1", 9300)),
    ],
)
def test_without_a_host_it_is_loopback(text: str, address: tuple[str, int]) -> None:
    assert parse(text) == address


@pytest.mark.parametrize("text", ["", ":9300", "here", "here:", "here:port", "65536", "-1", "1e3", "٣", "9300 "])
def test_what_is_no_address_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(HttpAddressError, match="an address is a port or host:port"):
        parse(text)


def test_a_port_in_use_is_named() -> None:
    with listen("0") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            HttpAddressError,
            match=f"^{port}: Address already in use; choose an address of this machine and a free port$",
        ):
            listen(str(port), patience_s=0.1)


@needs_ipv6
@pytest.mark.parametrize("reached", ["127.0.0.1", "::1"])
def test_every_interface_of_ipv6_is_every_interface_of_ipv4(reached: str) -> None:
    with listen("[::]:0") as everywhere:
        assert not is_loopback(everywhere)
        with socket.create_connection((reached, everywhere.getsockname()[1]), timeout=HANG_S):
            pass


def test_who_reaches_it_is_known() -> None:
    with listen("0") as here, listen("0.0.0.0:0") as everywhere:
        assert is_loopback(here)
        assert not is_loopback(everywhere)
        assert url(here) == f"http://127.0.0.1:{here.getsockname()[1]}"
