"""The connection file: private, whole, and clear about what is wrong with it."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from remuda.tests.patience import HANG_S
from remuda.wire.connection_file import ConnectionFile, ConnectionFileError, read, wait_for, write
from remuda.wire.messages import PROTOCOL_VERSION

CONNECTION = ConnectionFile(
    coordinator="01234567-89ab-cdef-0123-456789abcdef",
    address="tcp://127.0.0.1:4711",
    protocol=PROTOCOL_VERSION,
    host="node-7",
    pid=123,
    epoch=2,
    server_key="0123456789abcdef" * 4,
    keys_dir="/home/me/runs/.keys",
)


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def test_golden_text(tmp_path: Path) -> None:
    write(tmp_path / "connection.json", CONNECTION)
    assert (tmp_path / "connection.json").read_text() == (
        '{\n  "coordinator": "01234567-89ab-cdef-0123-456789abcdef",\n  "address": "tcp://127.0.0.1:4711",\n'
        '  "protocol": 20,\n  "host": "node-7",\n  "pid": 123,\n  "epoch": 2,\n'
        f'  "server_key": "{"0123456789abcdef" * 4}",\n  "keys_dir": "/home/me/runs/.keys"\n}}\n'
    )


def test_what_is_written_is_read_and_private_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    put(path, b"an older one")
    former = os.umask(0)
    try:
        write(path, CONNECTION)
    finally:
        os.umask(former)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path) == CONNECTION
    assert os.listdir(tmp_path) == ["connection.json"]


def test_a_file_open_to_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    write(path, CONNECTION)
    path.chmod(0o640)
    with pytest.raises(ConnectionFileError, match=r"connection.json has mode 0640, .*chmod 600"):
        read(path)


def changed(**fields: object) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(CONNECTION) | fields)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not a connection file: Input data was truncated"),
        (changed()[:-5], "is not a connection file"),
        (b"[" * 50_000, "is not a connection file"),
        (b" " * 70_000, "larger than 65536 bytes"),
        (b"{}", "missing required field `coordinator`"),
        (changed(coordinator="x"), r"\$\.coordinator"),
        (changed(address="tcp://host/x:1"), r"\$\.address"),
        (changed(server_key="0123456789ABCDEF" * 4), r"\$\.server_key"),
        (changed(server_key=None), "has no server_key: a Remuda without keys wrote it"),
        (
            changed(protocol=PROTOCOL_VERSION + 1),
            f"speaks protocol {PROTOCOL_VERSION + 1}, this Remuda protocol {PROTOCOL_VERSION}; install the same",
        ),
    ],
)
def test_malformed_content_is_refused_with_its_place(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "connection.json"
    put(path, content)
    with pytest.raises(ConnectionFileError, match=reason) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_fields_of_later_versions_are_ignored(tmp_path: Path) -> None:
    put(tmp_path / "connection.json", changed(another_key="x"))
    assert read(tmp_path / "connection.json") == CONNECTION


def test_waiting_ends_when_the_file_appears(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    timer = threading.Timer(0.05, write, (path, CONNECTION))
    timer.start()
    assert wait_for(path, HANG_S) == CONNECTION
    timer.join()
