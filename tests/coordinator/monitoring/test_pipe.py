"""The pipe from the loop: it never waits, and holds one snapshot at most."""

from __future__ import annotations

import socket

import msgspec
from msgspec.structs import replace

from remuda.coordinator.monitoring.pipe import LENGTH_BYTES, SnapshotPipe
from remuda.coordinator.monitoring.snapshot import Snapshot
from remuda.tests.coordinator.monitoring.snapshots import RUN, SNAPSHOT


def received(end: socket.socket) -> Snapshot:
    with end.makefile("rb") as stream:
        return msgspec.json.decode(stream.read(int.from_bytes(stream.read(LENGTH_BYTES))), type=Snapshot)


def test_a_snapshot_arrives_as_it_was() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert SnapshotPipe(ours).put(SNAPSHOT)
        assert received(theirs) == SNAPSHOT


def test_a_number_that_json_does_not_know_is_not_known() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        SnapshotPipe(ours).put(replace(SNAPSHOT, runs=[replace(RUN, best_return=float("nan"))]))
        assert received(theirs).runs[0].best_return is None


def test_a_reader_that_stands_still_costs_one_snapshot_and_no_time() -> None:
    ours, theirs = socket.socketpair()
    large = replace(SNAPSHOT, runs=10_000 * [RUN])
    with ours, theirs:
        pipe = SnapshotPipe(ours)
        assert pipe.put(large)  # more than the pipe takes
        for _ in range(5):
            assert pipe.put(replace(SNAPSHOT, turns=1))  # none of them is kept
        theirs.settimeout(10.0)
        length = int.from_bytes(theirs.recv(LENGTH_BYTES, socket.MSG_WAITALL))
        body = bytearray()
        while len(body) < length:
            body += theirs.recv(length - len(body))
            if len(body) < length:
                pipe.put(SNAPSHOT)  # sends what is left of the first, before any other
        assert msgspec.json.decode(body, type=Snapshot) == large


def test_it_says_that_the_reader_is_gone() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        assert not SnapshotPipe(ours).put(SNAPSHOT)
