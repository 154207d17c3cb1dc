"""A thousand workers on one coordinator: how long registering takes, what their beats cost, and whether all stay alive.

The coordinator is a real process with its journal; the workers are real sockets, channels and messages in a few other
processes, without any work. `--workers 10000` for a larger herd (raise `ulimit -n` first).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import psutil
import zmq

from remuda.benchmarks.figure import Figure, Goal, to_json
from remuda.client.client import Client
from remuda.coordinator.settings import BEATS_PER_S, LONGEST_BEAT_INTERVAL_S
from remuda.wire import connection_file
from remuda.wire.channel import Channel
from remuda.wire.codec import decode, encode
from remuda.wire.keys.folder import caller_keys
from remuda.wire.messages import PROTOCOL_VERSION, AnyMessage, Beat, BeatHeard, Register, Registered
from remuda.wire.sockets import show_keys, worker_identity

Done = Callable[[float], bool]

WORKERS = 1_000
PER_PROCESS = 2_500
"""Sockets of one simulating process."""
WATCHED_S = 20.0
"""Beats are watched for so long; a worker is lost after ten seconds of silence."""
HURRIED_BEATS = 300
"""What five minutes bring: by then each connection's queues have reached their size. Fewer for larger herds."""
SETTLE_S = 2.0
START_DEADLINE_S = 30.0
PHASE_DEADLINE_S = 120.0
FILES_PER_SOCKET = 3
"""Of a simulated worker; the coordinator has one for each."""
SPARE_FILES = 500
ARRIVE_TOGETHER = 20
"""Between two looks at what has come: one process connects for all, and its own delay is not to be measured."""
LOOK_S = 0.005
"""Between two looks at who has something to send."""


@dataclass
class _Worker:
    """One end of a conversation, without the process around it."""

    uuid: str
    socket: zmq.Socket[bytes]
    channel: Channel = field(default_factory=Channel)
    began_s: float = 0.0
    registered_s: float = math.nan
    beat_interval_s: float = 1.0
    next_beat_s: float = math.inf
    beats: int = 0
    hurried: int = 0
    """Beats that follow each other as fast as they are answered, before it settles down."""

    def register(self, address: str) -> None:
        """Connect, and say so."""
        self.began_s = time.monotonic()
        self.socket.connect(address)
        message = Register(self.uuid, 1, "collector", "benchmark", os.getpid(), PROTOCOL_VERSION, "benchmark")
        self.say(message, self.began_s)

    def say(self, message: AnyMessage, now_s: float) -> None:
        self._send(encode(self.channel.post(message, now_s)))

    def hear(self, now_s: float) -> None:
        """Take in all that has come."""
        with contextlib.suppress(zmq.Again):
            while True:
                envelope = decode(self.socket.recv_multipart(zmq.NOBLOCK))
                received = self.channel.take(envelope, now_s)
                for answer in received.answers:
                    self._send(encode(answer))
                if isinstance(received.message, Registered):
                    self.registered_s = now_s
                    self.beat_interval_s = received.message.beat_interval_s
                    self._beat(now_s)
                elif isinstance(received.message, BeatHeard):
                    self.beat_interval_s = received.message.next_s
                    if self.hurried > 0:
                        self.hurried -= 1
                        self._beat(now_s)

    def look(self, now_s: float) -> None:
        """Send what is due, and listen: sending may have swallowed the sign that something has come."""
        if now_s >= self.next_beat_s:
            self._beat(now_s)
            self.hear(now_s)
        elif self.channel.unacknowledged:
            for envelope in self.channel.due(now_s):
                self._send(encode(envelope))
            self.hear(now_s)

    def _beat(self, now_s: float) -> None:
        self.next_beat_s = now_s + self.beat_interval_s
        self.beats += 1
        self.say(Beat(0, "waiting for work"), now_s)

    def _send(self, frames: list[bytes | memoryview]) -> None:
        self.socket.send_multipart(frames, zmq.NOBLOCK)


def simulate(file: Path, count: int, hurried: int, over_s: float, pipe: Connection) -> None:
    """Be so many workers: register all at once, say how long each waited, then beat, and say how often, when asked."""
    with zmq.Context() as context, ExitStack() as stack, select.epoll() as epoll:
        context.max_sockets = count + 1
        connection = connection_file.read(file)
        address, keys = connection.address, caller_keys(connection, "worker")
        workers: dict[int, _Worker] = {}
        for _ in range(count):
            socket = stack.enter_context(context.socket(zmq.DEALER))
            uuid = str(uuid4())
            socket.linger, socket.identity = 0, worker_identity(uuid, 1, "benchmark", 1)
            show_keys(socket, keys)
            workers[socket.fileno()] = _Worker(uuid, socket, hurried=hurried)
            epoll.register(socket.fileno(), select.EPOLLIN | select.EPOLLET)
        pipe.send([])
        pipe.recv()
        began_s, arriving = time.monotonic(), deque(workers.values())

        def all_registered(now_s: float) -> bool:
            for _ in range(ARRIVE_TOGETHER):
                if arriving and (count - len(arriving)) * over_s <= (now_s - began_s) * count:
                    arriving.popleft().register(address)
            return not arriving and all(worker.registered_s >= 0 for worker in workers.values())

        _exchange(workers, epoll, all_registered)
        pipe.send([worker.registered_s - worker.began_s for worker in workers.values()])
        _exchange(workers, epoll, lambda now_s: not any(w.hurried for w in workers.values()))
        pipe.send([])
        while True:
            _exchange(workers, epoll, lambda now_s: pipe.poll(), deadline_s=math.inf)
            pipe.recv()
            pipe.send([float(sum(worker.beats for worker in workers.values()))])


def _exchange(
    workers: dict[int, _Worker], epoll: select.epoll, done: Done, *, deadline_s: float = PHASE_DEADLINE_S
) -> None:
    """Beat and listen until it is done."""
    end_s, next_look_s = time.monotonic() + deadline_s, 0.0
    while True:
        for descriptor, _ in epoll.poll(0.002):
            workers[descriptor].hear(time.monotonic())
        now_s = time.monotonic()
        if now_s < next_look_s:
            continue
        next_look_s = now_s + LOOK_S
        if done(now_s):
            return
        for worker in workers.values():
            worker.look(now_s)
        if now_s > end_s:
            raise TimeoutError("the herd did not get together in time")


@dataclass(frozen=True)
class Seen:
    """What one herd was like."""

    registered_p99_s: float
    cores: float
    """Processor time of the coordinator per second, while nothing but beats comes in."""
    beats_per_s: float
    """Of the whole herd."""
    alive: int
    """Workers in the registry at the end."""
    rss_before_mib: float
    rss_after_mib: float
    status_s: float


def watch(workers: int, watched_s: float, over_s: float = 0.0, *, hurried: bool = True) -> Seen:
    """Start a coordinator and a herd, and look at them for a while. `hurried`: memory is that of a herd five minutes
    old."""
    raise_file_limit(SPARE_FILES + max(workers, FILES_PER_SOCKET * min(workers, PER_PROCESS)))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        process, file = stack.enter_context(coordinator(folder))
        pipes = stack.enter_context(herd(file, workers, over_s, hurried))
        waits_s = sorted(registered(pipes))
        time.sleep(SETTLE_S)
        before, began_s, rss = _cpu_s(process), time.monotonic(), process.memory_info().rss
        beats = _beats(pipes)
        time.sleep(watched_s)
        cores = (_cpu_s(process) - before) / (time.monotonic() - began_s)
        beats_per_s = (_beats(pipes) - beats) / (time.monotonic() - began_s)
        rss_after = process.memory_info().rss
        began_s = time.monotonic()
        with Client(file) as client:
            alive = len(client.status().workers)
        status_s = time.monotonic() - began_s
    p99_s = waits_s[math.ceil(0.99 * len(waits_s)) - 1]
    return Seen(p99_s, cores, beats_per_s, alive, rss / 2**20, rss_after / 2**20, status_s)


def _beats(pipes: Sequence[Connection]) -> float:
    """How many the herd has sent so far."""
    for pipe in pipes:
        pipe.send("beats")
    return sum(beats for pipe in pipes for beats in _receive(pipe))


def registered(pipes: Sequence[Connection]) -> list[float]:
    """Let the herd register, and wait until all have; returns how long each waited."""
    for pipe in pipes:
        pipe.send("go")
    waits_s = [wait_s for pipe in pipes for wait_s in _receive(pipe)]
    for pipe in pipes:
        _receive(pipe)
    return waits_s


def _receive(pipe: Connection) -> list[float]:
    if not pipe.poll(PHASE_DEADLINE_S):
        raise TimeoutError("the herd did not get together in time")
    waits_s: list[float] = pipe.recv()
    return waits_s


@contextmanager
def herd(file: Path, workers: int, over_s: float, hurry: bool) -> Generator[list[Connection]]:
    """So many simulated workers, which register when they are told to."""
    processes = math.ceil(workers / PER_PROCESS)
    hurried = HURRIED_BEATS * min(WORKERS, workers) // workers if hurry else 0
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pipes: list[Connection] = []
        for number in range(processes):
            ours, theirs = spawn.Pipe()
            count = workers // processes + (number < workers % processes)
            process = spawn.Process(target=simulate, args=(file, count, hurried, over_s, theirs), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            pipes.append(ours)
        for pipe in pipes:
            _receive(pipe)
        yield pipes


@contextmanager
def coordinator(folder: Path) -> Generator[tuple[psutil.Process, Path]]:
    """Its process, and its connection file."""
    file = folder / "connection.json"
    arguments = ["--connection-file", str(file), "--runs-dir", str(folder / "runs"), "--persistent"]
    with (folder / "coordinator.log").open("wb") as output:
        process = subprocess.Popen([sys.executable, "-P", "-m", "remuda.coordinator", *arguments], stderr=output)
        try:
            end_s = time.monotonic() + START_DEADLINE_S
            while not file.exists():
                if time.monotonic() > end_s or process.poll() is not None:
                    raise TimeoutError((folder / "coordinator.log").read_text(encoding="utf-8"))
                time.sleep(0.01)
            yield psutil.Process(process.pid), file
        finally:
            process.kill()
            process.wait()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def raise_file_limit(files: int) -> None:
    """Every socket takes descriptors, here and in the coordinator."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and files > hard:
        raise SystemExit(f"{files} open files are needed, and the limit is {hard}: raise it with ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))


def figures_of(seen: Seen, workers: int) -> list[Figure]:
    """What was promised beside what was seen."""
    herd = f"{workers} workers"
    most_beats_per_s = max(BEATS_PER_S, workers / LONGEST_BEAT_INTERVAL_S)
    return [
        _figure(f"{herd}: registration p99", "s", seen.registered_p99_s, 4.0, "promised", "<= 1"),
        _figure(f"{herd}: cost of beats", "cores", seen.cores, 0.5, "promised", "<= 1"),
        _figure(f"{herd}: beats", "1/s", seen.beats_per_s, most_beats_per_s, "promised", "<= 1.1"),
        _figure(f"{herd}: still alive", "workers", seen.alive, workers, "registered", ">= 1"),
        _figure(f"{herd}: memory later", "MiB", seen.rss_after_mib, seen.rss_before_mib, "at first", "<= 1.05"),
    ]


def _figure(name: str, unit: str, ours: float, reference: float, reference_name: str, goal: str) -> Figure:
    ratio = ours / reference
    return Figure(name, unit, ours, reference, reference_name, ratio, goal, Goal.parse(goal).met(ratio), 1)


def figures(peers: bool) -> list[Figure]:
    """None of the systems compared with promises a size of its herd."""
    return [] if peers else figures_of(watch(WORKERS, WATCHED_S), WORKERS)


def main() -> None:
    """Measure a herd of any size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--seconds", type=float, default=WATCHED_S, help="how long beats are watched")
    parser.add_argument(
        "--over-s", type=float, default=0.0, help="they arrive one by one in so long (default: at once)"
    )
    parser.add_argument("--young", action="store_true", help="no beats in a hurry: memory may still grow a little")
    parser.add_argument("--peers", action="store_true", help="nothing to compare with")
    options = parser.parse_args()
    if options.peers:
        return
    seen = watch(options.workers, options.seconds, options.over_s, hurried=not options.young)
    print(json.dumps(vars(seen)), file=sys.stderr)
    for figure in figures_of(seen, options.workers):
        print(to_json(figure), flush=True)


if __name__ == "__main__":
    main()
