"""Notes of a run: a short text and tags from people, in `notes.json` of the run folder."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from remuda.storage.atomic import write_bytes
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import read_bounded

LONGEST_NOTE = 2_000
"""Characters of the text."""
LONGEST_TAG = 40
"""Characters of a tag."""
MOST_TAGS = 20
_MOST_BYTES = 64 << 10


class NotesError(Exception):
    """Notes are too long, or cannot be written, for the reason in the message."""


class Notes(Struct, frozen=True):
    """Text and tags of a run."""

    note: str = ""
    tags: list[str] = []


def valid_notes(note: str, tags: Iterable[str]) -> Notes:
    """Returns the notes without control characters, empty tags and repeated tags. A comma separates two tags. Raises
    NotesError."""
    found = Notes(_printable(note, keep="\n\t").strip(), _tags(tags))
    if len(found.note) > LONGEST_NOTE:
        raise NotesError(f"note: {len(found.note):,} characters, at most {LONGEST_NOTE:,} are allowed: shorten it")
    if len(found.tags) > MOST_TAGS:
        raise NotesError(f"tags: {len(found.tags)} tags, at most {MOST_TAGS} are allowed: remove some")
    for tag in found.tags:
        if len(tag) > LONGEST_TAG:
            text = f"tags: {tag[:LONGEST_TAG]!r}… has {len(tag):,} characters, at most {LONGEST_TAG} are allowed"
            raise NotesError(f"{text}: shorten it")
    return found


def read_notes(folder: RunFolder) -> Notes:
    """Reads the notes of a run. A missing, damaged or oversized file gives empty notes."""
    try:
        content = read_bounded(folder.notes, most_bytes=_MOST_BYTES, follow_link=False)
        found = msgspec.json.decode(content, type=Notes)
        return valid_notes(found.note, found.tags)
    except (OSError, ValueError, RecursionError, NotesError):
        return Notes()


def write_notes(folder: RunFolder, notes: Notes) -> None:
    """Replaces the notes of a run. Empty notes remove the file. Raises OSError."""
    if notes == Notes():
        folder.notes.unlink(missing_ok=True)
        return
    content = msgspec.json.format(msgspec.json.encode(notes), indent=2)
    write_bytes(folder.notes, content + b"\n", durable=True)


def _tags(tags: Iterable[str]) -> list[str]:
    words = (" ".join(_printable(part, keep="").split()) for tag in tags for part in tag.split(","))
    return list(dict.fromkeys(filter(None, words)))


def _printable(text: str, *, keep: str) -> str:
    """Returns the text with a space for each control character, invisible mark and half of a character."""
    hidden = ("Cc", "Cf", "Cs")
    return "".join(
        each if each in keep or unicodedata.category(each) not in hidden else " " for each in text.replace("\r\n", "\n")
    )
