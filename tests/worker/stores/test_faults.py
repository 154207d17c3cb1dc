"""What streams keep when something between the two ends fails: nothing is half believed, nothing is lost or doubled."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from remuda.buffer.chunk import encode_chunk, read_chunk
from remuda.policy.files.policy_file import publish
from remuda.tests.patience import HANG_S, until
from remuda.tests.worker.proxy import Proxy
from remuda.tests.worker.stores.served import WORKER, Ranch, chunk
from remuda.tests.worker.stores.test_ports import at_last
from remuda.wire.codec import Frame
from remuda.wire.messages import Grant, PolicyRef
from remuda.wire.streams import (
    PIECE_BYTES,
    WHOLE_BYTES,
    WHOLE_PARTS,
    WINDOW_BYTES,
    Begin,
    Piece,
    Put,
    decode,
    encode,
    of_workers,
)
from remuda.worker.stores import client as client_module
from remuda.worker.stores.server import uploads
from remuda.worker.stores.streams import LogStream
from remuda.worker.stores.transfers import Download, Upload

LARGE_ROWS = 400_000
"""Of about 10 MB: more than two windows."""
LONG_BLOCK_BYTES = 10_000
"""Longer than every message before the first bytes of a file."""
SMALL_BUFFER_BYTES = 32 << 10


def written_part(ranch: Ranch) -> int:
    """Bytes of a file in data/ that is not whole."""
    return sum(path.stat().st_size for path in ranch.run.data.glob(".*.tmp"))


def upload_of(ranch: Ranch, sequence: int = 0, rows: int = LARGE_ROWS) -> tuple[Upload, Callable[[], None]]:
    """An upload of a chunk, and a look at what has arrived, which must be all of it."""
    meta, columns = chunk(sequence, rows)
    announced, buffers = encode_chunk(meta, columns)

    def check() -> None:
        found = read_chunk(ranch.run.data / announced.file, announced)
        np.testing.assert_array_equal(found["obs"], columns["obs"])

    return Upload(ranch.grant(), "chunk", announced.file, buffers), check


def slow_disk(monkeypatch: pytest.MonkeyPatch, pause_s: float = 0.05) -> None:
    """So that a transfer takes some time."""
    write = uploads._write

    def slowly(*arguments: object) -> None:
        time.sleep(pause_s)
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(uploads, "_write", slowly)


@pytest.mark.parametrize("break_it", ["cut", "swallow"])
def test_a_transfer_goes_on_after_a_break(ranch: Ranch, monkeypatch: pytest.MonkeyPatch, break_it: str) -> None:
    """Either cut, or kept open while nothing passes any more, as when a cable is pulled out."""
    slow_disk(monkeypatch)
    with ranch.serve(), Proxy(ranch.port) as proxy:
        client = ranch.client(int(proxy.address.rpartition(":")[2]))
        upload, check = upload_of(ranch)
        client.start(upload)
        until(lambda: written_part(ranch) > 2 * PIECE_BYTES, "some of it has come")
        assert not list(ranch.run.data.glob("*.safetensors")), "a part of a file has no name"
        (proxy.cut if break_it == "cut" else proxy.swallow)()
        proxy.silence_is_over(client_module, monkeypatch)
        until(lambda: upload.finished, "the rest comes over another connection")
    assert upload.refused is None
    assert proxy.connections >= 2
    check()
    assert len(list(ranch.run.data.iterdir())) == 1


def test_bytes_that_were_changed_on_their_way_are_not_believed(ranch: Ranch, monkeypatch: pytest.MonkeyPatch) -> None:
    """CURVE authenticates each frame: the connection is over, and the file comes by another.

    ZeroMQ may hold the damaged connection and read it no more. Small buffers are then full at once.
    """
    ranch.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
    upload, check = upload_of(ranch)
    with ranch.serve(), Proxy(ranch.port) as proxy:
        proxy.damage(LONG_BLOCK_BYTES)
        ranch.client(int(proxy.address.rpartition(":")[2])).start(upload)
        until(lambda: proxy.damaged, "a part of it is damaged")
        proxy.silence_is_over(client_module, monkeypatch)
        until(lambda: upload.finished, "all of it comes over another connection")
    assert upload.refused is None
    assert proxy.connections >= 2
    check()


def test_a_killed_server_leaves_no_file(ranch: Ranch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process dies without a word: what it had written of a file stays under a temporary name, and is swept."""
    slow_disk(monkeypatch)
    monkeypatch.setattr(uploads.Uploads, "close", lambda self: None)  # so that it does not tidy up
    client = ranch.client()
    upload, check = upload_of(ranch)
    with ranch.serve() as first:
        client.start(upload)
        until(lambda: written_part(ranch) > 2 * PIECE_BYTES, "some of it has come")
    for left in first.server._uploads._of_path.values():
        os.close(left.descriptor)  # as the operating system does
    assert not list(ranch.run.data.glob("*.safetensors"))
    assert written_part(ranch), "as after kill -9"
    with ranch.serve():
        until(lambda: upload.finished, "the next server has all of it")
    check()


def test_a_worker_that_is_gone_leaves_nothing(ranch: Ranch, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_disk(monkeypatch)
    monkeypatch.setattr(uploads, "FORGET_AFTER_S", 0.3)
    client = ranch.client()
    upload, _ = upload_of(ranch)
    with ranch.serve():
        client.start(upload)
        until(lambda: written_part(ranch) > 2 * PIECE_BYTES, "some of it has come")
        client.close()
        until(lambda: not list(ranch.run.data.iterdir()), "what came of it is removed")
    assert upload.refused is not None


def test_a_full_disk_is_waited_for_and_the_worker_is_told(ranch: Ranch, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [errno.ENOSPC]
    write = uploads._write

    def refusing(*arguments: object) -> None:
        if full:
            raise OSError(full[0], os.strerror(full[0]))
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(uploads, "_write", refusing)
    client = ranch.client()
    upload, check = upload_of(ranch, rows=50)
    with ranch.serve():
        client.start(upload)
        until(lambda: os.strerror(errno.ENOSPC) in upload.problem, "the worker knows why")
        assert upload.lacks_bytes > 0, "for the run's line"
        assert not upload.finished
        full.clear()
        until(lambda: upload.finished, "there is room again")
    check()


def test_what_is_on_its_way_is_bounded(ranch: Ranch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender is never further ahead than a window, whatever the disk does."""
    ahead: list[int] = []
    client = ranch.client()
    upload, check = upload_of(ranch)
    write = uploads._write

    def noted(descriptor: int, data: list[Frame], offset: int) -> None:
        ahead.append(upload._sent - offset)
        time.sleep(0.01)
        write(descriptor, data, offset)

    monkeypatch.setattr(uploads, "_write", noted)
    with ranch.serve():
        client.start(upload)
        until(lambda: upload.finished, "it is there")
    check()
    assert max(ahead) <= WINDOW_BYTES
    assert len(ahead) > 10


def test_a_checkpoint_is_fetched_over_breaks(ranch: Ranch, monkeypatch: pytest.MonkeyPatch) -> None:
    content = np.random.default_rng(0).bytes(2 * WINDOW_BYTES + 1_000_000)
    broken, write = threading.Event(), Download._write

    def waiting(download: Download, data: Frame) -> None:
        write(download, data)
        if download._received > PIECE_BYTES:
            assert broken.wait(HANG_S), "so that the rest has not come when the connection breaks"

    monkeypatch.setattr(Download, "_write", waiting)
    ranch.run.checkpoint(5).write_bytes(content)
    ranch.elsewhere.mkdir()
    download = Download(ranch.grant("evaluator"), "checkpoint", "iteration_5.pth.tar", ranch.elsewhere / "file")
    with ranch.serve(), Proxy(ranch.port) as proxy:
        client = ranch.client(int(proxy.address.rpartition(":")[2]))
        client.start(download)
        until(lambda: download._received > PIECE_BYTES, "some of it has come")
        assert not (ranch.elsewhere / "file").exists()
        proxy.cut()
        proxy.silence_is_over(client_module, monkeypatch)
        broken.set()
        until(lambda: download.finished, "the rest comes")
    assert proxy.connections >= 2
    assert download.refused is None
    assert (ranch.elsewhere / "file").read_bytes() == content
    assert [path.name for path in ranch.elsewhere.iterdir()] == ["file"]


def test_a_policy_that_is_replaced_while_it_is_fetched_is_one_whole_publication(ranch: Ranch) -> None:
    def published(version: int) -> None:
        state = {"w": np.full(3_000_000, version, np.float32)}
        publish(ranch.policy_file, state, PolicyRef(1, version, version), warn=pytest.fail)

    published(0)
    with ranch.serve():
        store = ranch.stores("streams").policies
        newest: PolicyRef | None = None
        for version in range(1, 6):
            published(version)
            loaded = at_last(lambda: store.load(newer_than=newest))  # noqa: B023  (called at once)
            assert loaded is not None
            assert set(np.unique(loaded.state["w"])) == {loaded.ref.version}
            newest = loaded.ref


def test_a_log_arrives_exactly_over_breaks_and_restarts(ranch: Ranch) -> None:
    path = ranch.elsewhere / "log.txt"
    ranch.elsewhere.mkdir()
    arrived = ranch.run.worker_log("collector", WORKER, 1)
    client = ranch.client()
    log = LogStream(ranch.grant(), path)
    client.start(log)
    text = ""
    for part in range(4):
        text += "".join(f"{part} line {number}\n" for number in range(20_000))  # more than one piece
        path.write_text(text)
        with ranch.serve():
            until(lambda: arrived.exists() and arrived.read_text() == text, "all of it is there")  # noqa: B023
    assert log.is_complete


def test_a_server_that_has_moved_is_followed(ranch: Ranch) -> None:
    """The coordinator was started again, and its port is another."""
    client = ranch.client()
    upload, check = upload_of(ranch)
    client.start(upload)
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        ranch.listener.close()
        ranch.listener = elsewhere.dup()
        with ranch.serve():
            client.serve_at(f"tcp://127.0.0.1:{elsewhere.getsockname()[1]}")
            until(lambda: upload.finished, "it is there")
    check()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_failed_thread_should_have_carried_is_not_waited_for(ranch: Ranch) -> None:
    """A worker that waited for it would wait for good, and nobody would know why."""
    client = ranch.client()
    earlier, _ = upload_of(ranch, rows=50)
    later, _ = upload_of(ranch, sequence=1, rows=50)

    def fail(number: int, now_s: float) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    client.start(earlier)
    broken, _ = upload_of(ranch, sequence=2, rows=50)
    broken.open = fail  # type: ignore[method-assign]
    client.start(broken)
    until(lambda: earlier.finished and broken.finished, "both are given up")
    client.start(later)
    assert client.failed
    assert later.finished
    for upload in (earlier, broken, later):
        assert upload.refused is not None
        assert upload.refused.reason == "the thread that carries files has failed"


def test_what_comes_after_the_end_of_its_run_is_not_kept(ranch: Ranch, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a worker whose network was away: data/ is swept already, and nobody would remove it."""
    slow_disk(monkeypatch)
    client = ranch.client()
    late, _ = upload_of(ranch)
    later, _ = upload_of(ranch, sequence=1, rows=50)
    with ranch.serve():
        client.start(late)
        until(lambda: written_part(ranch) > 2 * PIECE_BYTES, "some of it has come")
        ranch.run.owner.unlink()
        client.start(later)
        until(lambda: late.finished and later.finished, "both are refused")
    assert [each.refused is not None and "the run is over" in each.refused.reason for each in (late, later)] == [
        True
    ] * 2
    assert list(ranch.run.data.iterdir()) == []


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
