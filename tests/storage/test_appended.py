"""What a disk takes of a record only in part is taken back before the next one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.storage.record_file import AppendedFile


def refuse(patch: pytest.MonkeyPatch, *names: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in names:
        patch.setattr(os, name, fail)


def partly(patch: pytest.MonkeyPatch, count: int) -> None:
    """A disk with room for so many bytes."""
    write, room = os.write, [count]

    def act(descriptor: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        taken = write(descriptor, data[: room[0]])
        room[0] -= taken
        return taken

    patch.setattr(os, "write", act)


@pytest.mark.parametrize("room", [0, 1, 5])
@pytest.mark.parametrize("cutting_fails", [False, True])
def test_part_of_a_record_is_cut_off_before_the_next(tmp_path: Path, room: int, cutting_fails: bool) -> None:
    file = AppendedFile(tmp_path / "f")
    file.append(b"first\n")
    with pytest.MonkeyPatch.context() as patch:
        partly(patch, room)
        if cutting_fails:
            refuse(patch, "ftruncate")
        with pytest.raises(OSError, match="No space left"):
            file.append(b"second\n")
    assert file.path.read_bytes() == b"first\n" + (b"second\n"[:room] if cutting_fails else b"")
    file.append(b"third\n")
    file.close()
    assert file.path.read_bytes() == b"first\nthird\n"


def test_nothing_is_appended_while_a_part_cannot_be_cut_off(tmp_path: Path) -> None:
    file = AppendedFile(tmp_path / "f")
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, "ftruncate")
        partly(patch, 3)
        with pytest.raises(OSError, match="No space left"):
            file.append(b"first\n")
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, "ftruncate")
        with pytest.raises(OSError, match="No space left"):
            file.append(b"second\n")
    file.append(b"third\n")
    file.close()
    assert file.path.read_bytes() == b"third\n"


def test_what_others_have_appended_is_not_cut_off(tmp_path: Path) -> None:
    file, other = AppendedFile(tmp_path / "f"), AppendedFile(tmp_path / "f")
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, "ftruncate")
        partly(patch, 3)
        with pytest.raises(OSError, match="No space left"):
            file.append(b"first\n")
    other.append(b"other\n")
    file.append(b"second\n")
    assert (tmp_path / "f").read_bytes() == b"firother\nsecond\n"
    for each in (file, other):
        each.close()


def test_it_knows_whether_its_name_is_still_its_own(tmp_path: Path) -> None:
    file = AppendedFile(tmp_path / "f")
    assert [file.in_place] == [True]
    os.rename(tmp_path / "f", tmp_path / "g")
    assert [file.in_place] == [False]
    (tmp_path / "f").touch()
    assert [file.in_place] == [False]
    file.close()
    file.close()
    for act in (lambda: file.in_place, lambda: file.append(b"x")):
        with pytest.raises(ValueError, match="is closed"):
            act()
