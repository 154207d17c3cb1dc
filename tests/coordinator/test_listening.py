"""A coordinator listens where it was told to, or where the one before it did, and to other machines only if told."""

from __future__ import annotations

import pytest

from remuda.coordinator.listening import CannotListenError, listen, listen_again
from remuda.tests.keys import door


def test_it_listens_again_where_the_one_before_did() -> None:
    first = listen_again(None, door())
    address = first.address
    first.close()
    again = listen_again(address, door())
    assert again.address == address
    again.close()


def test_where_that_address_is_taken_it_takes_another() -> None:
    first = listen_again(None, door())
    second = listen_again(first.address, door())
    assert second.address != first.address
    assert second.address.startswith("tcp://127.0.0.1:")
    first.close()
    second.close()


@pytest.mark.parametrize("before", ["tcp://0.0.0.0:41717", "tcp://192.0.2.1:41717"])
def test_an_address_for_other_machines_is_not_taken_again_unasked(before: str) -> None:
    socket = listen_again(before, door())
    assert socket.address.startswith("tcp://127.0.0.1:")
    socket.close()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(CannotListenError, match=r"^tcp://192\.0\.2\.1:5555: "):
        listen("tcp://192.0.2.1:5555", door())
