"""Which key is shown to a coordinator: one of its own folder where that is seen, else the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.tests.keys import connection_to, keys_folder
from remuda.wire import connection_file
from remuda.wire.connection_file import HandedKey
from remuda.wire.keys.folder import FOLDER, KEY_FILE, KeysFolder, caller_keys, keys_again, no_exchange, not_authorized
from remuda.wire.keys.pair import new_pair
from remuda.wire.keys.secret_file import KeyFileError, read_secret, write_secret

CONNECTION = connection_to("tcp://127.0.0.1:4711")


def test_the_owner_of_the_folder_needs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "a key for another coordinator"))
    for holder in ("operator", "worker"):
        keys = caller_keys(CONNECTION, "operator" if holder == "operator" else "worker")
        assert keys.server == keys_folder().server.public
        assert keys.own == read_secret(keys_folder().path / holder)


def test_who_does_not_see_it_has_a_key_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = replace(CONNECTION, keys_dir=str(tmp_path / "not here"))
    monkeypatch.delenv(KEY_FILE, raising=False)
    with pytest.raises(KeyFileError, match=r"there is no key .*REMUDA_KEY_FILE is not set. .*`remuda keys new NAME`"):
        caller_keys(elsewhere, "operator")
    pair = new_pair("alice")
    write_secret(tmp_path / "alice.key", pair)
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "alice.key"))
    assert caller_keys(elsewhere, "worker").own == pair
    assert keys_again(elsewhere, "worker").own == pair


def test_a_folder_of_that_name_elsewhere_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = KeysFolder(tmp_path / FOLDER)
    other.save()
    monkeypatch.delenv(KEY_FILE, raising=False)
    with pytest.raises(KeyFileError, match="there is no key"):
        caller_keys(replace(CONNECTION, keys_dir=str(other.path)), "operator")


def test_a_refusal_says_what_to_ask_for_and_shows_no_secret() -> None:
    keys = caller_keys(CONNECTION, "worker")
    text = not_authorized(CONNECTION, keys, "worker")
    assert f"`remuda keys add worker {keys.own.public} --right worker`" in text
    assert f"it was revoked, or never added to {CONNECTION.keys_dir}/authorized" in text
    assert "--right viewer" in not_authorized(CONNECTION, keys, "operator")
    for shown in (text, no_exchange(CONNECTION), repr(keys)):
        assert keys.own.secret.hex() not in shown
        assert repr(keys.own.secret) not in shown


def test_an_invited_user_needs_nothing_but_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = new_pair("two")
    invited = replace(CONNECTION, own_key=HandedKey("two", pair.secret.hex()), keys_dir=str(tmp_path / "not here"))
    monkeypatch.delenv(KEY_FILE, raising=False)
    keys = caller_keys(invited, "worker")
    assert (keys.server, keys.own) == (CONNECTION.server_key, pair)
    assert keys_again(invited, "worker") == keys
    file = tmp_path / "two.json"
    connection_file.write(file, invited)
    assert connection_file.read(file) == invited
    for text in (repr(invited), str(invited), repr(keys), not_authorized(invited, keys, "worker")):
        assert pair.secret.hex() not in text
