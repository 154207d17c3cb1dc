"""Keys of actors: let in with the right of a worker, one for each worker, and no longer than the launch."""

from __future__ import annotations

from pathlib import Path

from remuda.wire.keys.folder import HerdKeys, KeysFolder
from remuda.wire.keys.pair import new_pair


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
