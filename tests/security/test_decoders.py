"""Damaged and hostile bytes: each decoder takes them or raises the one error that it promises, in bounded memory.

By default some examples, and with `make security` tens of thousands; there `fuzz.py` looks for others, too.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - what must never be opened
import tempfile
import tracemalloc
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.tests.poison import Poison
from remuda.tests.security.decoders import DECODERS, Decoder
from remuda.tests.security.sizes import EXAMPLES

MOST_BYTES = 64 << 20
"""That a decoder may take at once for any file of this test."""
SPARSE_BYTES = 1 << 40
NO_FILES = (
    "message",
    "stream message",
    "question to an inference worker",
    "columns of a learner rank",
    "override",
    "submitted config",
)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")

each = pytest.mark.parametrize("decoder", DECODERS, ids=[decoder.name for decoder in DECODERS])


@cache
def honest(decoder: Decoder) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return decoder.honest(Path(folder))


def given_to(decoder: Decoder, content: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return decoder.given(Path(folder), content)


@each
def test_an_honest_file_is_taken(decoder: Decoder) -> None:
    assert given_to(decoder, honest(decoder))


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """An honest file, changed in up to six places: other bytes, cut out, put in, doubled, or cut off."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 6))):
        # near the beginning, where headers are, as often as anywhere
        end = draw(st.sampled_from((min(len(changed), 64), min(len(changed), 600), len(changed))))
        place = draw(st.integers(0, end))
        new = draw(st.binary(max_size=8) | st.sampled_from((b"\xff" * 8, b"\0" * 8, b"[" * 99, b"-1", b"1e999", b'"')))
        match draw(st.integers(0, 3)):
            case 0:
                changed[place : place + len(new)] = new
            case 1:
                changed[place:place] = new
            case 2:
                del changed[place : place + draw(st.integers(1, 40))]
            case _:
                del changed[place:]
    return bytes(changed)


@each
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_a_damaged_file_is_taken_or_refused(decoder: Decoder, data: st.DataObject) -> None:
    given_to(decoder, data.draw(damaged(honest(decoder))))


@each
@settings(max_examples=max(EXAMPLES // 3, 20), deadline=None, suppress_health_check=[*HealthCheck])
@given(content=st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused(decoder: Decoder, content: bytes) -> None:
    given_to(decoder, content)


def bombs(folder: Path) -> dict[str, bytes]:
    """Small files that would take much, and files of other kinds."""
    return {
        "empty": b"",
        "null bytes": bytes(5_000),
        "deep JSON list": b"[" * 200_000,
        "deep JSON object": b'{"a":' * 100_000,
        "deep JSON in a field": b'{"name": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "deep MessagePack": b"\x91" * 200_000,
        "array of four billion": b"\xdd\xff\xff\xff\xff",
        "map of four billion": b"\xdf\xff\xff\xff\xff",
        "text of four gigabytes": b"\xdb\xff\xff\xff\xff",
        "header of ten terabytes": (10 << 40).to_bytes(8, "little") + b"{}",
        "header of sixteen megabytes": (16 << 20).to_bytes(8, "little") + b"{}",
        "pickle": pickle.dumps(Poison(folder / "canary")),
        "zip": b"PK\x03\x04" + bytes(60),
        "SQLite": b"SQLite format 3\0" + b"\xff" * 4_080,
        "long line": b"x" * 2_000_000,
        "half a character": b"\xed\xa0\x80" * 10,
        "large number": b"9" * 10_000,
    }


def peak_of(decoder: Decoder, path: Path) -> int:
    """The most memory that was taken at once while it read this file."""
    decoder.taken(path)  # what is imported stays
    tracemalloc.start()
    try:
        decoder.taken(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@each
def test_what_would_take_much_is_refused(decoder: Decoder, tmp_path: Path) -> None:
    for name, content in bombs(tmp_path).items():
        folder = tmp_path / name
        folder.mkdir()
        path = folder / decoder.file
        path.write_bytes(content)
        path.chmod(0o600)
        assert peak_of(decoder, path) < MOST_BYTES, name
    assert not (tmp_path / "canary").exists()


FILES = [decoder for decoder in DECODERS if decoder.name not in NO_FILES]


@pytest.mark.parametrize("decoder", FILES, ids=[decoder.name for decoder in FILES])
def test_a_terabyte_is_not_read_into_memory_and_a_pipe_not_waited_for(decoder: Decoder, tmp_path: Path) -> None:
    """The file is sparse: its first bytes are honest. Opening a pipe that nobody writes to would never end."""
    path = tmp_path / decoder.file
    if decoder.name != "curves":  # their writer reads back from the end to the last mark, however far that is
        decoder.make(path)
        os.truncate(path, SPARSE_BYTES)
        assert peak_of(decoder, path) < MOST_BYTES
        path.unlink()
    os.mkfifo(path, 0o600)
    passes_over = decoder.name in ("curves", "notes")
    assert not decoder.taken(path) or passes_over, "these pass over what is no file"
