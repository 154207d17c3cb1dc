"""What a worker says to bring a file, a short one at once, a longer one when it is asked for; and when it is due."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from remuda.wire.messages import Grant
from remuda.wire.streams.messages import (
    PIECE_BYTES,
    WHOLE_BYTES,
    WHOLE_PARTS,
    WINDOW_BYTES,
    Begin,
    LogHas,
    Piece,
    Put,
    Refused,
)
from remuda.wire.streams.sockets import decode, encode, of_workers
from remuda.worker.stores.streams import LOG_INTERVAL_S, LOG_LONGEST_S, LogStream
from remuda.worker.stores.transfers import FIRST_PAUSE_S, Upload

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


def test_a_file_is_due_when_it_is_to_be_opened_and_not_while_an_answer_is() -> None:
    upload = opened([SMALL])
    assert upload.due_s == 0.0
    said(upload)
    assert upload.due_s == math.inf
    upload.on_message(Refused(1, "the disk is full", again=True), b"", 7.0)
    assert upload.due_s == 7.0 + FIRST_PAUSE_S


def test_a_log_is_due_when_it_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    log = LogStream(GRANT, path)
    log.open(1, 5.0)
    assert log.due_s == 5.0
    for pause_s in (LOG_INTERVAL_S, 2 * LOG_INTERVAL_S, LOG_LONGEST_S, LOG_LONGEST_S):
        before_s = log.due_s
        assert list(log.say(before_s)) == []
        assert log.due_s == before_s + pause_s, "later and later, while it does not grow"
    path.write_text("line\n")
    assert len(list(log.say(log.due_s))) == 1
    assert log.due_s == math.inf, "until it is confirmed"
    log.on_message(LogHas(1, 5), b"", 9.0)
    assert log.due_s == 9.0 + LOG_INTERVAL_S
    assert list(log.say(log.due_s)) == []
    assert log.due_s == 9.0 + 2 * LOG_INTERVAL_S, "soon again, since it has grown"
