"""Whether two processes see the same folder, found out and never assumed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from remuda.storage import folder_token
from remuda.storage.folder_token import FolderToken, has_token

ID = "01234567-89ab-cdef-0123-456789abcdef"


def test_who_sees_the_folder_sees_the_token_and_nobody_else_does(tmp_path: Path) -> None:
    token = FolderToken(tmp_path / "runs", ID)
    assert not has_token(tmp_path / "runs", ID, token.digest), "it is not written yet"
    assert not (tmp_path / "runs").exists()
    token.write()
    assert has_token(tmp_path / "runs", ID, token.digest)
    assert not has_token(tmp_path / "other", ID, token.digest)
    token.remove()
    assert not has_token(tmp_path / "runs", ID, token.digest)
    token.remove()


def test_a_folder_of_another_coordinator_or_of_another_start_is_not_it(tmp_path: Path) -> None:
    token, of_another = FolderToken(tmp_path, ID), FolderToken(tmp_path, ID.replace("0", "1"))
    token.write()
    of_another.write()
    assert not has_token(tmp_path, ID, of_another.digest)
    later = FolderToken(tmp_path, ID)
    assert later.digest != token.digest
    assert not has_token(tmp_path, ID, later.digest)


def test_a_folder_that_may_not_be_written_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is mounted read-only: nothing could be put into data/."""
    token = FolderToken(tmp_path, ID)
    token.write()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert not has_token(tmp_path, ID, token.digest)


def test_a_pipe_or_a_link_in_its_place_is_not_read(tmp_path: Path) -> None:
    """A pipe would block whoever opens it."""
    token = FolderToken(tmp_path / "runs", ID)
    token.write()
    (path,) = (tmp_path / "runs").iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert not has_token(tmp_path / "runs", ID, token.digest)
    path.unlink()
    os.mkfifo(path)
    assert not has_token(tmp_path / "runs", ID, token.digest)


def test_what_a_killed_process_left_long_ago_is_removed(tmp_path: Path) -> None:
    dead, alive = FolderToken(tmp_path, "dead"), FolderToken(tmp_path, "alive")
    dead.write()
    alive.write()
    place = tmp_path / ".seen_dead"
    place.write_text(place.read_text().replace(f"process {os.getpid()}", "process 4194305"))
    FolderToken(tmp_path, "third").write()
    assert place.exists(), "it may be in use: an id of a process says nothing in another container"
    old_s = time.time() - folder_token._OLD_S - 60.0
    for path in (place, tmp_path / ".seen_alive"):
        os.utime(path, (old_s, old_s))
    FolderToken(tmp_path, "fourth").write()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".seen_alive", ".seen_fourth", ".seen_third"]
