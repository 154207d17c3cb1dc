"""Chunk announcements that a real coordinator acknowledges per second, against bare round trips of the same frames."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import zmq

from remuda.benchmarks.figure import Figure, Measure, compare, main
from remuda.benchmarks.open_lines import open_lines
from remuda.benchmarks.peers import peer
from remuda.benchmarks.stand_ins import DEADLINE_S, coordinator
from remuda.buffer.chunk import chunk_name
from remuda.client.client import Client
from remuda.config.schema import ExperimentConfig
from remuda.wire.channel import Channel
from remuda.wire.codec import Envelope, encode
from remuda.wire.connection_file import ConnectionFile, read
from remuda.wire.keys.folder import caller_keys
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    AnyMessage,
    Assign,
    ChunkAccepted,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    PolicyRef,
    Ready,
    Register,
    Role,
)
from remuda.wire.sockets import DealerSocket, Malformed, worker_identity

COLLECTORS = 8
"""Clients of the coordinator, all in one process: there are two cores, and the coordinator has one of them."""
WINDOW = 32
"""Announcements of each collector that wait for their acknowledgement."""
PAUSE_S = 0.0001
"""When nothing came: the other process needs the cores, and so do the sockets' threads."""
WARM_UP = 4_000
COUNT = 40_000
ROWS = 64
OTHERS: tuple[Role, ...] = ("evaluator", "learner")
CONFIG = ExperimentConfig.model_validate(
    {
        "name": "announcements",
        "env": {"id": "CartPole-v1"},
        "collector": {"count": COLLECTORS},
        "evaluator": {"interval_env_steps": 1 << 50},
        "checkpoint": {"interval_env_steps": 1 << 50},
        "buffer": {"samples_per_insert": None},
        "log": {"progress_interval_env_steps": 100_000},
        "stop": {"max_env_steps": 1 << 52},
    }
)
"""A prioritized replay buffer of 100 000 rows, so that soon every chunk evicts another. Nobody samples, and there are
no payload files: what is measured is the coordinator's part of announcing."""


def announced(*, keys: bool = True) -> float:
    """Announcements/s, from the first one sent to the last one acknowledged, with the journal on. `keys`: see
    benchmarks/keys.py."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if not keys:
            stack.enter_context(open_lines())
        connection_file = stack.enter_context(coordinator(Path(folder), keys=keys))
        connection = read(connection_file)
        with Client(connection_file) as client:
            client.submit(CONFIG, run_dir=Path(folder) / "run")
        collectors = [stack.enter_context(_Worker(connection, "collector")) for _ in range(COLLECTORS)]
        others = [stack.enter_context(_Worker(connection, role)) for role in OTHERS]
        for worker in collectors + others:  # no run begins without a learner and an evaluator; these two do nothing
            worker.take_lease()
        announce = [collector.announce for collector in collectors]
        acknowledged = [collector.acknowledged for collector in collectors]
        _exchange(announce, acknowledged, WARM_UP)
        return _exchange(announce, acknowledged, COUNT)


def bare_round_trips() -> float:
    """Round trips/s between a ROUTER that answers at once and the same DEALERs, with frames of the same sizes."""
    announcement = [bytes(frame) for frame in encode(Envelope(3, 0, 3, _announcement(1, str(uuid4()), 0)))]
    parent, child = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_answer_at_once, args=(child,), daemon=True)
    server.start()
    try:
        if not parent.poll(DEADLINE_S):
            raise TimeoutError("the bare server did not start")
        with zmq.Context() as context, ExitStack() as stack:
            sockets = [stack.enter_context(context.socket(zmq.DEALER)) for _ in range(COLLECTORS)]
            address: str = parent.recv()
            for socket in sockets:
                socket.linger = 0
                socket.connect(address)
            send = [_bare_sender(socket, announcement) for socket in sockets]
            receive = [_bare_receiver(socket) for socket in sockets]
            _exchange(send, receive, WARM_UP)
            return _exchange(send, receive, COUNT)
    finally:
        server.kill()
        server.join()


def _exchange(send: list[Callable[[], None]], received: list[Callable[[], int]], count: int) -> float:
    """Keep WINDOW messages of everybody in flight until `count` are answered; returns answers/s."""
    begin_s = time.perf_counter()
    sent = done = 0
    for one in send * WINDOW:
        one()
        sent += 1
    while done < count:
        if time.perf_counter() - begin_s > DEADLINE_S:
            raise TimeoutError(f"{done} of {count} answers came within {DEADLINE_S:g} s")
        done_before = done
        for one, answers in zip(send, received, strict=True):
            arrived = answers()
            done += arrived
            for _ in range(min(arrived, count - sent)):
                one()
                sent += 1
        if done == done_before:
            time.sleep(PAUSE_S)
    return done / (time.perf_counter() - begin_s)


# --- who talks to the coordinator -----------------------------------------------------------------------------------


class _Worker:
    """A worker's side of the wire without the rest of it: real channel, real messages, no threads, no beats."""

    def __init__(self, connection: ConnectionFile, role: Role) -> None:
        self._uuid = str(uuid4())
        self._channel = Channel()
        self._socket = DealerSocket(
            connection.address, worker_identity(self._uuid, 1, "benchmark", 1), caller_keys(connection, "worker")
        )
        self._lease = 0
        self._sequence = 0
        self._say(Register(self._uuid, 1, role, "benchmark", os.getpid(), PROTOCOL_VERSION, "benchmark"))

    def take_lease(self) -> None:
        """Wait for one and say Ready."""
        end_s = time.monotonic() + DEADLINE_S
        while not self._lease:
            if time.monotonic() > end_s:
                raise TimeoutError("the worker was given no lease")
            self._socket.wait(0.1)
            for message in self._arrived():
                if isinstance(message, Assign):
                    self._lease = message.lease
        self._say(Ready(self._lease))

    def announce(self) -> None:
        """Announce the next chunk."""
        self._say(_announcement(self._lease, self._uuid, self._sequence))
        self._sequence += 1

    def acknowledged(self) -> int:
        """How many acknowledgements have come since the last call."""
        count = 0
        for message in self._arrived():
            if isinstance(message, ChunkAccepted):
                if message.rejected is not None:
                    raise RuntimeError(f"a chunk was refused: {message.rejected}")
                count += 1
        return count

    def _say(self, message: AnyMessage) -> None:
        self._socket.send(self._channel.post(message, time.monotonic()))

    def _arrived(self) -> Iterator[AnyMessage]:
        while (event := self._socket.receive()) is not None:
            if isinstance(event, Malformed):
                raise event.error
            received = self._channel.take(event.envelope, time.monotonic())
            for envelope in received.answers:
                self._socket.send(envelope)
            if received.message is not None:
                yield received.message

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()


def _announcement(lease: int, worker: str, sequence: int) -> ChunkReady:
    chunk = ChunkId(worker, 1, sequence)
    meta = ChunkMeta(
        chunk=chunk,
        file=chunk_name(chunk),
        rows=ROWS,
        env_steps=ROWS,
        payload_bytes=4_096,
        checksum=1 << 31,
        policy=PolicyRef(),
        collect_s=0.01,
        episode_returns=[20.0, 21.0, 22.0],
        episode_lengths=[20, 21, 22],
    )
    return ChunkReady(lease, meta)


# --- bare sockets ---------------------------------------------------------------------------------------------------


def _answer_at_once(pipe: Connection) -> None:
    """Answer every message with one of an acknowledgement's size, without end."""
    accepted = ChunkAccepted(ChunkId(str(uuid4()), 1, 0), ROWS, PolicyRef(), {"epsilon": 0.05})
    answer = [bytes(frame) for frame in encode(Envelope(0, 3, 1, accepted))]
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind("tcp://127.0.0.1:*")
        pipe.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        while True:
            frames = socket.recv_multipart()
            socket.send_multipart([frames[0], *answer])


def _bare_sender(socket: zmq.Socket[bytes], frames: list[bytes]) -> Callable[[], None]:
    def send() -> None:
        socket.send_multipart(frames)

    return send


def _bare_receiver(socket: zmq.Socket[bytes]) -> Callable[[], int]:
    def receive() -> int:
        count = 0
        try:
            while True:
                socket.recv_multipart(zmq.NOBLOCK)
                count += 1
        except zmq.Again:
            return count

    return receive


def figures(peers: bool) -> list[Figure]:
    """Of the real coordinator with journal; the peer's is a call of an actor's method that counts."""
    name, unit = "announcements", "acknowledged/s"
    found = compare(name, unit=unit, goal=">= 0.5", ours=announced, references={"bare round trips": bare_round_trips})
    if peers:
        references: dict[str, Measure] = {"Ray actor calls": peer("ray", "actor_calls")}
        found += compare(name, unit=unit, goal=">= 10", ours=announced, references=references)
    return found


if __name__ == "__main__":
    main(figures)
