"""What the stream server refuses, and what it makes of nonsense."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import zmq
from msgspec.structs import replace

from remuda.buffer.chunk import chunk_name, encode_chunk
from remuda.tests.keys import caller, connection_to, keys_folder, raw_dealer
from remuda.tests.patience import until
from remuda.tests.worker.stores.served import OTHER, WORKER, Ranch, Server, chunk
from remuda.wire.codec import Frame
from remuda.wire.keys.authorized import Grants
from remuda.wire.messages import ChunkId
from remuda.wire.streams import (
    PIECE_BYTES,
    Begin,
    Cancel,
    FromServer,
    FromWorker,
    Get,
    Opened,
    Piece,
    Put,
    Refused,
    Stored,
    StreamDealer,
    Written,
    encode,
)
from remuda.worker.stores.transfers import Upload


@contextmanager
def speaking(ranch: Ranch) -> Generator[StreamDealer]:
    """A socket that says what a test wants."""
    with closing(StreamDealer(f"tcp://127.0.0.1:{ranch.port}", caller())) as dealer:
        yield dealer


def answer(dealer: StreamDealer) -> FromServer:
    found: list[FromServer] = []

    def heard() -> bool:
        dealer.wait(0.01)
        said = dealer.take()
        if said is not None:
            found.append(said[0])
        return bool(found)

    until(heard, "an answer")
    return found[0]


def ask(dealer: StreamDealer, message: FromWorker, *data: Frame) -> FromServer:
    assert dealer.say(message, *data)
    return answer(dealer)


def put(ranch: Ranch, **changes: Any) -> Put:
    id = ChunkId(WORKER, 1, 0)
    return replace(Put(1, ranch.grant(), "chunk", chunk_name(id), 100), **changes)


def test_a_grant_for_a_folder_outside_is_refused(ranch: Ranch) -> None:
    """Even one with a seal: the coordinator was started with another runs folder. One without a seal is, too."""
    grant = Grants(keys_folder().server).seal(replace(ranch.grant(), run_dir=str(ranch.runs_dir / ".." / "other")))
    with ranch.serve(), speaking(ranch) as dealer:
        refused = ask(dealer, put(ranch, grant=grant))
        assert isinstance(refused, Refused)
        assert "is not in the coordinator's runs folder" in refused.reason
        unsealed = ask(dealer, put(ranch, grant=replace(ranch.grant(), worker=OTHER)))
        assert isinstance(unsealed, Refused)
        assert (unsealed.again, "the coordinator has not granted this" in unsealed.reason) == (False, True)
    assert list(ranch.run.data.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("chunk", "x.safetensors"),
        ("chunk", chunk_name(ChunkId(OTHER, 1, 0))),
        ("chunk", chunk_name(ChunkId(WORKER, 2, 0))),
        ("reanalysis", chunk_name(ChunkId(WORKER, 1, 0)).replace(".safetensors", ".reanalysis.safetensors")),
        ("description", "vars.pkl"),
    ],
)
def test_a_worker_brings_its_own_files_and_no_others(ranch: Ranch, kind: Any, file: str) -> None:
    with ranch.serve(), speaking(ranch) as dealer:
        refused = ask(dealer, put(ranch, kind=kind, file=file))
        assert isinstance(refused, Refused)
        assert not refused.again
    assert list(ranch.run.data.iterdir()) == []


def test_what_arrives_is_checked_by_its_own_header_before_it_gets_its_name(ranch: Ranch) -> None:
    meta, columns = chunk(0)
    announced, buffers = encode_chunk(meta, columns)
    other = chunk_name(ChunkId(WORKER, 1, 1))
    for file, content in ((other, buffers), (announced.file, [b"\0" * 1_000]), (announced.file, buffers[:-1])):
        upload = Upload(ranch.grant(), "chunk", file, content)
        with ranch.serve():
            ranch.client().start(upload)
            until(lambda: upload.finished, "an answer")  # noqa: B023  (called at once)
        assert upload.refused is not None
        assert list(ranch.run.data.iterdir()) == []


def test_pieces_are_taken_in_order_and_each_once(ranch: Ranch) -> None:
    meta, columns = chunk(0, 60_000)
    announced, buffers = encode_chunk(meta, columns)
    content = b"".join(buffers)
    assert len(content) > 2 * PIECE_BYTES

    def piece(offset: int) -> tuple[Piece, bytes]:
        data = content[offset : offset + PIECE_BYTES]
        return Piece(1, offset), data

    with ranch.serve(), speaking(ranch) as dealer:
        assert ask(dealer, put(ranch, file=announced.file, size_bytes=len(content))) == Begin(1, 0)
        assert ask(dealer, *piece(PIECE_BYTES)) == Written(1, 0), "after a gap"
        assert ask(dealer, *piece(0)) == Written(1, PIECE_BYTES)
        assert ask(dealer, *piece(0)) == Written(1, PIECE_BYTES), "twice"
        assert ask(dealer, put(ranch, file=announced.file, size_bytes=len(content))) == Begin(1, PIECE_BYTES), "again"
        offset = PIECE_BYTES
        while offset < len(content):
            last = ask(dealer, *piece(offset))
            offset += PIECE_BYTES
        assert last == Stored(1)
    assert (ranch.run.data / announced.file).read_bytes() == content


def test_a_file_of_which_nothing_is_lacking_takes_up_no_place(ranch: Ranch) -> None:
    """Its worker takes nothing, so it would be kept until it is forgotten."""
    ranch.run.checkpoint(1).write_bytes(b"xxxxx")
    want = Get(1, ranch.grant("evaluator"), "checkpoint", "iteration_1.pth.tar", offset=5)
    with ranch.serve() as serving, speaking(ranch) as dealer:
        opened = ask(dealer, want)
        assert isinstance(opened, Opened)
        assert opened.size_bytes == 5
        assert len(serving.server._downloads) == 0


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", ".hidden"])
def test_no_name_leaves_its_folder(ranch: Ranch, name: str) -> None:
    with ranch.serve() as serving, speaking(ranch) as dealer:
        assert dealer.say(Get(1, ranch.grant("evaluator"), "checkpoint", name))
        until(lambda: serving.server._socket.malformed == 1, "it is not a name")


def frames_of_nonsense(ranch: Ranch) -> list[list[bytes]]:
    whole = [bytes(frame) for frame in encode(put(ranch))]
    return [
        [b""],
        [b"S\x01", whole[1]],
        [b"R\x07", whole[1]],
        [whole[0], b"\xc1"],
        [whole[0], whole[1][:-3]],
        [bytes(frame) for frame in encode(Cancel(1), b"with bytes")],
        [whole[0], b"x" * 20_000],
        [*whole, b""],
        [bytes(frame) for frame in encode(Piece(1, 0))],
        [bytes(frame) for frame in encode(Piece(1, 0), b"a", b"b")],
    ]


def test_nonsense_is_counted_and_passed_over(ranch: Ranch) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with ranch.serve() as serving:
        socket = raw_dealer(context, connection_to(f"tcp://127.0.0.1:{ranch.port}"), b"anybody")
        nonsense = frames_of_nonsense(ranch)
        for frames in nonsense:
            socket.send_multipart(frames)
        until(lambda: serving.server._socket.malformed == len(nonsense), "all are counted")
        with speaking(ranch) as dealer:
            assert ask(dealer, put(ranch)) == Begin(1, 0)
        socket.close(linger=0)
    context.term()


def test_who_has_no_workers_key_is_not_heard(ranch: Ranch) -> None:
    with ranch.serve() as serving:
        with closing(StreamDealer(f"tcp://127.0.0.1:{ranch.port}", caller("operator"))) as dealer:
            assert dealer.say(put(ranch))
            until(lambda: refusals(serving) == 1, "it is counted")
        assert list(ranch.run.data.iterdir()) == []


def refusals(serving: Server) -> int:
    return serving.server._socket._door.refusals.counts.forbidden
