"""The keys of a runs folder: made once, private, and changed one at a time."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from remuda.wire.keys.authorized import Identity
from remuda.wire.keys.folder import FOLDER, OWN, HerdKeys, KeysFolder
from remuda.wire.keys.pair import new_pair
from remuda.wire.keys.secret_file import KeyFileError, read_secret


@pytest.fixture
def folder(tmp_path: Path) -> KeysFolder:
    made = KeysFolder(tmp_path / FOLDER)
    made.save()
    return made


def test_a_new_folder_has_what_a_coordinator_and_its_user_need(folder: KeysFolder) -> None:
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    operator, worker = (read_secret(folder.path / name) for name in ("operator", "worker"))
    assert folder.listed() == {
        operator.public: Identity("operator", "operator"),
        worker.public: Identity("worker", "worker"),
    }
    for name in ("coordinator", "operator", "worker", "authorized"):
        assert stat.S_IMODE((folder.path / name).stat().st_mode) == 0o600
    assert folder.server.public not in folder.listed(), "the coordinator speaks to nobody as itself"


def test_two_that_begin_at_once_do_not_get_different_keys(tmp_path: Path) -> None:
    first, second = KeysFolder(tmp_path / FOLDER), KeysFolder(tmp_path / FOLDER)
    first.save()
    with pytest.raises(KeyFileError, match="another process has just made keys"):
        second.save()
    assert KeysFolder(tmp_path / FOLDER).server == first.server


def test_one_that_was_killed_while_it_made_keys_is_repeated(folder: KeysFolder) -> None:
    folder.add("alice", "a" * 64, "viewer")
    (folder.path / "coordinator").unlink()
    again = KeysFolder(folder.path)
    again.save()
    assert {each.name for each in again.listed().values()} == {"operator", "worker", "alice"}
    assert read_secret(again.path / "worker").public in again.listed()


def test_a_folder_that_others_can_look_into_is_refused(folder: KeysFolder) -> None:
    folder.path.chmod(0o750)
    with pytest.raises(KeyFileError, match=r"mode 0750, .*chmod 700"):
        KeysFolder(folder.path)


@pytest.mark.parametrize(
    ("name", "public", "right", "reason"),
    [
        ("operator", "a" * 64, "viewer", "there is a key called operator"),
        ("coordinator", "a" * 64, "viewer", "the coordinator's own"),
        ("alice", "a" * 64, "king", "no right"),
    ],
)
def test_what_cannot_be_added_is_left_out(folder: KeysFolder, name: str, public: str, right: str, reason: str) -> None:
    before = folder.authorized.read_bytes()
    with pytest.raises(KeyFileError, match=reason):
        folder.add(name, public, right)
    assert folder.authorized.read_bytes() == before


def test_the_key_of_somebody_else_is_replaced_by_what_its_owner_gives(folder: KeysFolder) -> None:
    folder.add("alice", "a" * 64, "viewer")
    with pytest.raises(KeyFileError, match="remuda keys rotate alice PUBLIC-KEY"):
        folder.rotate("alice")
    assert folder.rotate("alice", "b" * 64) == "b" * 64
    assert folder.listed()["b" * 64] == Identity("alice", "viewer")
    assert "a" * 64 not in folder.listed()


@pytest.mark.parametrize("name", OWN)
def test_an_own_key_is_not_revoked(folder: KeysFolder, name: str) -> None:
    """Its user would be locked out, and could not add the key again."""
    known = folder.listed()
    with pytest.raises(KeyFileError, match=f"the key {name} is your own, .*`remuda keys rotate {name}` replaces"):
        folder.revoke(name)
    assert folder.listed() == known


def test_the_coordinators_own_key_is_made_again_and_counts_from_its_next_start(folder: KeysFolder) -> None:
    """Until then commands, workers and the stream server need the former one."""
    former, listed = folder.server, folder.listed()
    public = folder.rotate("coordinator")
    assert public != former.public
    assert KeysFolder(folder.path).server == former
    refused = KeysFolder(folder.path)
    refused.turn_over()  # a second coordinator, which may not start
    assert KeysFolder(folder.path).server == former
    started = KeysFolder(folder.path)
    started.turn_over()
    started.save()
    assert started.server.public == KeysFolder(folder.path).server.public == public
    assert folder.listed() == listed
    again = KeysFolder(folder.path)
    again.turn_over()
    again.save()
    assert again.server.public == public, "nothing was rotated since"


def test_a_key_that_is_rotated_while_a_coordinator_starts_is_for_the_start_after(folder: KeysFolder) -> None:
    first = folder.rotate("coordinator")
    started = KeysFolder(folder.path)
    started.turn_over()
    second = folder.rotate("coordinator")
    started.save()
    assert KeysFolder(folder.path).server.public == first
    following = KeysFolder(folder.path)
    following.turn_over()
    assert following.server.public == second


def test_the_next_process_of_a_worker_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    folder = KeysFolder(tmp_path / ".keys")
    folder.save()
    own = dict(folder.listed())
    first, second, other = (new_pair("x").public for _ in range(3))
    with HerdKeys(tmp_path / ".keys") as keys:
        keys.let_in("collector-1", first)
        keys.let_in("collector-2", other)
        assert {public for public in folder.listed() if public not in own} == {first, other}
        keys.let_in("collector-1", second)
        added = {public: each for public, each in folder.listed().items() if public not in own}
        assert {public: (each.name, each.right) for public, each in added.items()} == {
            second: ("collector-1", "worker"),
            other: ("collector-2", "worker"),
        }
    assert folder.listed() == own


def test_a_folder_that_is_gone_with_its_coordinator_is_no_error(tmp_path: Path) -> None:
    folder = KeysFolder(tmp_path / ".keys")
    folder.save()
    with HerdKeys(tmp_path / ".keys") as keys:
        keys.let_in("collector-1", new_pair("x").public)
        for path in (tmp_path / ".keys").iterdir():
            path.unlink()
        (tmp_path / ".keys").rmdir()
    assert not (tmp_path / ".keys").exists(), "it is not made again"
