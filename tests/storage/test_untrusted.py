"""Files and folders of one user: those that others can open are not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.storage.untrusted import NotPrivateError, check_private_folder, read_private


def private(path: Path, mode: int = 0o600) -> Path:
    path.write_bytes(b"content")
    path.chmod(mode)
    return path


def test_a_private_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    assert read_private(private(tmp_path / "f"), most_bytes=3) == b"con"
    assert read_private(private(tmp_path / "g", 0o400), most_bytes=100) == b"content"


@pytest.mark.parametrize("mode", [0o640, 0o602])
def test_a_file_that_others_can_open_is_refused_with_the_command_that_helps(tmp_path: Path, mode: int) -> None:
    path = private(tmp_path / "a file", mode)
    with pytest.raises(NotPrivateError, match=rf"mode {mode:04o}, .*chmod 600 '{path}'"):
        read_private(path, most_bytes=100)


def test_what_belongs_to_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, me = private(tmp_path / "f"), os.geteuid()
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    for check in (lambda: read_private(path, most_bytes=9), lambda: check_private_folder(tmp_path)):
        with pytest.raises(NotPrivateError, match=rf"another user \(user id {me}, yours is {me + 1}\)"):
            check()


@pytest.mark.parametrize("mode", [0o750, 0o701])
def test_a_folder_that_others_can_look_into_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(NotPrivateError, match=f"mode {mode:04o}, .*chmod 700"):
        check_private_folder(tmp_path)
    tmp_path.chmod(0o700)
    check_private_folder(tmp_path)
