"""Notes of a run: written whole or not at all, bounded, and without characters that a terminal obeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.storage.notes import LONGEST_NOTE, LONGEST_TAG, MOST_TAGS, Notes, NotesError, read_notes, valid_notes
from remuda.storage.notes import write_notes as write
from remuda.storage.run_folder import RunFolder


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert read_notes(folder) == Notes()
    notes = valid_notes("a first line\nand <b>markup</b>, ü", ["good", "lr 0.1"])
    write(folder, notes)
    assert read_notes(folder) == notes
    assert [path.name for path in tmp_path.iterdir()] == ["notes.json"]
    write(folder, Notes())
    assert list(tmp_path.iterdir()) == [], "empty notes leave no file"


def test_tags_are_tidied_and_no_control_character_is_kept() -> None:
    found = valid_notes("\x1b[31mred\ud800\r\nnext ", [" a  b ", "c,d", "", "a b", "e\u202ef\n"])
    assert found == Notes("[31mred \nnext", ["a b", "c", "d", "e f"])


@pytest.mark.parametrize(
    ("note", "tags", "said"),
    [
        ("x" * (LONGEST_NOTE + 1), [], "2,001 characters, at most 2,000"),
        ("", [str(at) for at in range(MOST_TAGS + 1)], "21 tags, at most 20"),
        ("", ["x" * (LONGEST_TAG + 1)], "41 characters, at most 40"),
    ],
)
def test_too_much_is_refused(note: str, tags: list[str], said: str) -> None:
    with pytest.raises(NotesError, match=said):
        valid_notes(note, tags)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"note": 1}', b"[" * 60_000, b'{"note": "' + b"x" * 70_000])
def test_a_file_that_makes_no_sense_is_as_none(tmp_path: Path, content: bytes) -> None:
    folder = RunFolder(tmp_path)
    folder.notes.write_bytes(content)
    assert read_notes(folder) == Notes()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    other.root.mkdir()
    write(other, Notes("of another run"))
    folder = RunFolder(tmp_path)
    folder.notes.symlink_to(other.notes)
    assert read_notes(folder) == Notes()
    write(folder, Notes("mine"))
    assert (read_notes(folder).note, read_notes(other).note) == ("mine", "of another run")
