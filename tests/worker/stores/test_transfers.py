"""What a worker says to bring a file, a short one at once, a longer one when it is asked for; and when it is due."""

from __future__ import annotations

import pytest

from remuda.wire.messages import Grant
from remuda.wire.streams.messages import (
    PIECE_BYTES,
    WHOLE_BYTES,
    WHOLE_PARTS,
    WINDOW_BYTES,
    Begin,
    Piece,
    Put,
)
from remuda.wire.streams.sockets import decode, encode, of_workers
from remuda.worker.stores.transfers import Upload

GRANT = Grant("runs/x", "collector", "aaaaaaaa-0000-4000-8000-000000000001", 1, "policy_x")
SMALL, LARGE = bytes(range(200)), b"L" * (70 << 10)


def said(upload: Upload, now_s: float = 0.0) -> list[tuple[object, bytes]]:
    """All that it says now, as the other end understands it."""
    found: list[tuple[object, bytes]] = []
    for message, parts in upload.say(now_s):
        understood, data = decode([bytes(frame) for frame in encode(message, *parts)], of_workers)
        assert len(data) <= WHOLE_PARTS
        assert max(map(len, data), default=0) <= PIECE_BYTES
        found.append((understood, b"".join(data)))
    return found


def opened(buffers: list[bytes]) -> Upload:
    upload = Upload(GRANT, "chunk", "file", buffers)
    upload.open(1, 0.0)
    return upload


@pytest.mark.parametrize(
    "buffers",
    [
        [b"x"],
        [SMALL, LARGE, LARGE, SMALL, b"", SMALL],
        [SMALL, b"y" * (WHOLE_BYTES - len(SMALL))],
        [SMALL, LARGE] * 25,  # more than there are frames for
        [SMALL] * 1_000,
    ],
)
def test_a_short_file_is_brought_whole_in_one_message(buffers: list[bytes]) -> None:
    upload = opened(buffers)
    ((message, data),) = said(upload)
    assert isinstance(message, Put)
    assert (message.size_bytes, data) == (len(data), b"".join(buffers))
    assert said(upload) == [], "nothing more until there is an answer"
    upload.open(1, 5.0)  # the connection broke
    assert said(upload, 5.0) == [(message, data)]


@pytest.mark.parametrize("buffers", [[], [b"z" * (WHOLE_BYTES + 1)], [SMALL, b"z" * (WINDOW_BYTES + PIECE_BYTES)]])
def test_a_longer_file_waits_until_it_is_asked_for(buffers: list[bytes]) -> None:
    upload = opened(buffers)
    size = sum(map(len, buffers))
    assert said(upload) == [(Put(1, GRANT, "chunk", "file", size), b"")]
    upload.on_message(Begin(1, 0), b"", 0.0)
    pieces = said(upload)
    assert all(isinstance(message, Piece) for message, _ in pieces)
    sent = b"".join(data for _, data in pieces)
    assert sent == b"".join(buffers)[: len(sent)]
    assert len(sent) in (size, *range(WINDOW_BYTES - PIECE_BYTES + 1, WINDOW_BYTES + 1))
