"""A worker's connections: the newest keys, or the former ones where the files cannot be read."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.tests.keys import connection_to
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.keys.folder import FOLDER, KEY_FILE, KeysFolder
from remuda.wire.messages import PROTOCOL_VERSION, Register
from remuda.worker.session import Connector

REGISTER = Register("aaaaaaaa-0000-4000-8000-000000000001", 1, "collector", "here", 1, PROTOCOL_VERSION, "0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeysFolder:
    monkeypatch.delenv(KEY_FILE, raising=False)
    made = KeysFolder(tmp_path / FOLDER)
    made.save()
    return made


def connection(folder: KeysFolder) -> ConnectionFile:
    found = connection_to("tcp://127.0.0.1:9")  # nobody listens there
    return replace(found, server_key=folder.server.public, keys_dir=str(folder.path))


def test_a_key_that_was_rotated_is_noticed(folder: KeysFolder) -> None:
    connector = Connector(connection(folder), REGISTER, lambda: None)
    with closing(connector.connect()):
        assert not connector.keys_changed()
        public = folder.rotate("worker")
        assert connector.keys_changed()
        assert f"remuda keys add worker {public} --right worker" in connector.not_authorized
    with closing(connector.connect()):
        assert not connector.keys_changed()


def test_where_the_files_are_away_the_former_keys_go_on(folder: KeysFolder) -> None:
    """As on a network file system that is gone for a while; the connection may break meanwhile."""
    connector = Connector(connection(folder), REGISTER, lambda: None)
    (public,) = [public for public, identity in folder.listed().items() if identity.name == "worker"]
    connector.connect().close()
    shutil.rmtree(folder.path)
    connector.connect().close()
    assert f"remuda keys add worker {public} --right worker" in connector.not_authorized, "it shows the former key"
