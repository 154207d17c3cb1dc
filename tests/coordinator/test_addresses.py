"""The address in the connection file leads to the coordinator, whatever it is bound to."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import pytest

from remuda.coordinator import addresses as addresses_module
from remuda.coordinator.addresses import ConnectionFileTakenError, PublishedFiles, listen_again, reachable
from remuda.coordinator.settings import Settings
from remuda.storage.lock import Ownership
from remuda.storage.run_folder import RUNS_OWNER
from remuda.tests.keys import door
from remuda.tests.patience import HANG_S
from remuda.wire.keys.folder import FOLDER, KeysFolder


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


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1:5555", "tcp://localhost:1", "tcp://198.51.100.7:2", "tcp://[::1]:5555", "tcp://node7:3"],
)
def test_an_address_that_names_a_host_stays(address: str) -> None:
    assert reachable(address) == address


def test_who_listens_everywhere_is_reached_there() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        url = urlsplit(reachable(f"tcp://0.0.0.0:{server.getsockname()[1]}"))
        with socket.create_connection((url.hostname, url.port or 0), timeout=HANG_S) as client:
            accepted, address = server.accept()
            with accepted:
                assert address == client.getsockname(), "it is this one that has come"


def test_without_a_way_to_other_networks_any_interface_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses_module, "_towards_others", lambda: None)
    host = urlsplit(reachable("tcp://0.0.0.0:1")).hostname
    assert host in {each.address for addresses in psutil.net_if_addrs().values() for each in addresses}
    monkeypatch.setattr(psutil, "net_if_addrs", dict)
    assert reachable("tcp://0.0.0.0:1") == "tcp://127.0.0.1:1"
    assert reachable("tcp://[::]:1") == "tcp://[::1]:1"


def test_a_machine_with_ipv6_alone_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses_module, "_towards_others", lambda: None)
    addresses = [SimpleNamespace(family=socket.AF_INET6, address=each) for each in ("fe80::1%eth0", "2001:db8::7")]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": addresses})
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"eth0": SimpleNamespace(isup=True)})
    assert reachable("tcp://[::]:5555") == "tcp://[2001:db8::7]:5555"
    assert reachable("tcp://0.0.0.0:5555") == "tcp://127.0.0.1:5555", "nobody listens at its address of IPv6"


def test_a_connection_file_stays_that_of_a_living_coordinator_of_another_folder(tmp_path: Path) -> None:
    file = tmp_path / "connection.json"
    living, other = (
        PublishedFiles(Settings(tmp_path / name, file, persistent=True), str(uuid4())) for name in ("living", "other")
    )
    keys = KeysFolder(tmp_path / "living" / FOLDER)
    keys.save()
    owner = Ownership(tmp_path / "living" / RUNS_OWNER)
    living.put_connection_file("tcp://127.0.0.1:5555", 1, keys)
    with pytest.raises(ConnectionFileTakenError, match=f"{file} leads to .*living belongs to process .*, which is al"):
        other.require_free()
    living.require_free()
    owner.release()
    other.require_free()


@pytest.mark.parametrize(
    ("content", "lost"),
    [
        ("milk\n", True),
        ('{"milk": 2}', True),
        ("", False),
        (f'{{"coordinator": "{uuid4()}", "protocol": 1}}', False),
        (f'{{"coordinator": "{uuid4()}", "own_key": {{"secret": "x"}}}}', True),
    ],
    ids=["notes", "json", "empty", "former version", "invitation"],
)
def test_a_file_of_another_kind_is_not_replaced_by_the_connection_file(
    tmp_path: Path, content: str, lost: bool
) -> None:
    file = tmp_path / "notes"
    file.write_text(content)
    files = PublishedFiles(Settings(tmp_path / "runs", file, persistent=True), str(uuid4()))
    if lost:
        with pytest.raises(
            ConnectionFileTakenError, match=f"^{file} is no connection file of a coordinator, and would be overwri"
        ):
            files.require_free()
    else:
        files.require_free()
