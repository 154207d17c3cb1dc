"""`remuda keys`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.cli import keys
from remuda.tests.cli.terminal import Terminal
from remuda.tests.keys import connection_to
from remuda.wire import connection_file
from remuda.wire.keys.folder import KeysFolder, caller_keys
from remuda.wire.keys.secret_file import read_secret

ALICE = "a" * 64


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    KeysFolder(tmp_path / "runs" / ".keys").save()
    return tmp_path / "runs"


def names(terminal: Terminal, runs: Path) -> dict[str, str]:
    ended = terminal.remuda("keys", "list", "--json", "--runs-dir", runs)
    assert (ended.code, ended.err) == (0, "")
    return {row["name"]: row["right"] for row in json.loads(ended.out)}


def test_a_new_key_prints_its_public_half_and_keeps_the_secret_one_private(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "mine" / "alice.key"
    ended = terminal.remuda("keys", "new", "alice", "--file", file)
    pair = read_secret(file)
    assert (ended.code, ended.out) == (0, f"{pair.public}\n")
    assert f"export REMUDA_KEY_FILE={file}" in ended.err
    assert f"remuda keys add alice {pair.public} --right viewer" in ended.err
    assert pair.secret.hex() not in ended.out + ended.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    again = terminal.remuda("keys", "new", "alice", "--file", file)
    assert again.code == 2
    assert "exists: choose another name" in again.err
    assert read_secret(file) == pair


def test_add_list_rotate_revoke(terminal: Terminal, runs: Path) -> None:
    assert names(terminal, runs) == {"operator": "operator", "worker": "worker"}
    added = terminal.remuda("keys", "add", "alice", ALICE, "--right", "viewer", "--runs-dir", runs)
    assert (added.code, added.out) == (0, "")
    assert names(terminal, runs)["alice"] == "viewer"
    assert f"alice                viewer    {ALICE}\n" in terminal.remuda("keys", "list", "--runs-dir", runs).out
    rotated = terminal.remuda("keys", "rotate", "worker", "--runs-dir", runs)
    assert rotated.out.strip() == read_secret(runs / ".keys" / "worker").public
    assert terminal.remuda("keys", "rotate", "alice", "b" * 64, "--runs-dir", runs).out == "b" * 64 + "\n"
    assert terminal.remuda("keys", "revoke", "alice", "--runs-dir", runs).code == 0
    assert names(terminal, runs) == {"operator": "operator", "worker": "worker"}


@pytest.mark.parametrize("arguments", [("list",), ("revoke", "alice"), ("rotate", "worker")])
def test_where_there_are_no_keys_none_are_made(terminal: Terminal, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended = terminal.remuda("keys", *arguments, "--runs-dir", tmp_path / "runs")
    assert ended.code == 2
    assert "there are no keys in" in ended.err
    assert not (tmp_path / "runs").exists()


def test_an_invitation_is_a_private_connection_file_with_a_key_that_is_let_in(terminal: Terminal, runs: Path) -> None:
    folder = KeysFolder(runs / ".keys")
    there = replace(connection_to("tcp://10.0.0.1:5555"), server_key=folder.server.public)
    connection_file.write(runs / "connection.json", there)
    file = runs.parent / "two.json"
    ended = terminal.remuda("keys", "invite", "two", file, "--runs-dir", runs)
    assert (ended.code, ended.out) == (0, "")
    assert "two is let in as worker; on that machine: --connection-file two.json" in ended.err
    assert names(terminal, runs)["two"] == "worker"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    invited = connection_file.read(file)
    assert invited.own_key is not None
    assert replace(invited, own_key=None) == there
    assert invited.own_key.secret not in ended.err
    public = caller_keys(invited, "worker").own.public
    assert folder.listed()[public].name == "two"


def test_a_failed_invitation_lets_nobody_in(terminal: Terminal, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "WAIT_S", 0.0)
    file = runs.parent / "two.json"
    ended = terminal.remuda("keys", "invite", "two", file, "--runs-dir", runs)
    assert ended.code == 2
    assert "the coordinator has to run, since its address is part of the file" in ended.err
    file.write_text("something of mine")
    ended = terminal.remuda("keys", "invite", "two", file, "--runs-dir", runs)
    assert (ended.code, file.read_text()) == (2, "something of mine")
    assert "exists: choose another name" in ended.err
    assert "two" not in names(terminal, runs)
