"""Who wants to join: twins, strangers of another protocol, hundreds at once, a flood ahead of the beats."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
import psutil
import pytest
import zmq
from msgspec.structs import replace as changed

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd
from remuda.tests.faults.sizes import CROWD, FLOOD_S, TWINS, WATCHED_S, WORKERS, within
from remuda.tests.imports import THIS_CHECKOUT
from remuda.tests.keys import raw_dealer
from remuda.tests.patience import HANG_S, until
from remuda.wire.channel import Channel
from remuda.wire.codec import Envelope, encode
from remuda.wire.connection_file import read
from remuda.wire.conversation import RefusedError
from remuda.wire.keys.folder import caller_keys
from remuda.wire.messages import PROTOCOL_VERSION, Beat, Bye, Leave, Register, Registered
from remuda.wire.sockets import Arrival, DealerSocket, worker_identity
from remuda.worker.link import Link

pytestmark = pytest.mark.processes


def register(uuid: str, incarnation: int = 1) -> Register:
    return Register(uuid, incarnation, "collector", "here", os.getpid(), PROTOCOL_VERSION, "0")


@contextmanager
def link(herd: Herd, message: Register) -> Generator[Link]:
    made = Link(read(herd.connection_file), message)
    try:
        yield made
    finally:
        made.close("it was a test", HANG_S)


SPEAKS = """
import sys
from remuda.wire import codec, connection_file, messages
import remuda.deploy.roles as roles
for module in (codec, connection_file, messages, roles):
    if hasattr(module, "PROTOCOL_VERSION"):
        module.PROTOCOL_VERSION = int(sys.argv[1])
from pathlib import Path
from remuda.deploy.nanny import new_workers, supervise
sys.exit(supervise(new_workers({"collector": 1}), Path(sys.argv[2])))
"""


def test_twins_other_protocols_and_nonsense_disturb_nobody(herds: Herds, tmp_path: Path) -> None:
    """1, 4, 5."""
    herd = herds()
    herd.coordinator()
    bystander = register(str(uuid4()))
    with link(herd, bystander) as undisturbed:
        undisturbed.start(HANG_S)
        for _ in range(TWINS):
            of_two_with_one_uuid_one_stays(herd, str(uuid4()))
            until(lambda: len(herd.members()) == 1, "all others have left")
        who_speaks_another_protocol_leaves(herd, tmp_path / "lying.json")
        nonsense_is_counted(herd)
        assert [member.uuid for member in herd.members()] == [bystander.worker]
    herd.shut_down()


def of_two_with_one_uuid_one_stays(herd: Herd, uuid: str) -> None:
    """The second learns it within a second; one with a higher incarnation takes over. The registry holds one."""
    with link(herd, register(uuid)) as first, link(herd, changed(register(uuid), pid=1)) as second:
        first.start(HANG_S)
        begin_s = time.monotonic()
        with pytest.raises(RefusedError, match="already here as incarnation 1") as refused:
            second.start(HANG_S)
        assert refused.value.code == "superseded"
        assert within(time.monotonic() - begin_s, 1.0)
        with link(herd, register(uuid, 2)) as third:
            third.start(HANG_S)
            assert [member.incarnation for member in herd.members() if member.uuid == uuid] == [2]
            told = first.receive(HANG_S)
            assert isinstance(told, Leave)
            assert told.reason == "incarnation 2 has taken over"


def who_speaks_another_protocol_leaves(herd: Herd, lying: Path) -> None:
    """With exit code 3. Told by the connection file, or by the coordinator where that file does not tell."""
    lying.write_text(json.dumps(json.loads(herd.connection_file.read_text()) | {"protocol": PROTOCOL_VERSION + 1}))
    lying.chmod(0o600)
    by_file = herd.start("other", sys.executable, "-c", SPEAKS, 0, herd.connection_file)
    by_word = herd.start("other", sys.executable, "-c", SPEAKS, PROTOCOL_VERSION + 1, lying)
    assert (by_file.wait(HANG_S), by_word.wait(HANG_S)) == (3, 3), herd.said()
    said = herd.said()
    assert f"the coordinator speaks protocol {PROTOCOL_VERSION}, this Remuda protocol 0" in said
    assert said.count("is not started again: it was refused") == 2


def nonsense_is_counted(herd: Herd) -> None:
    """A bad role, a bad UUID, and no message at all."""
    uuid = str(uuid4())
    frames = [bytes(frame) for frame in encode(Envelope(1, 0, 1, register(uuid)))]
    swaps = ((b"collector", b"overseers"), (uuid.encode(), b"x" * 36), (frames[-1], b"\xc1" * 9))
    with zmq.Context() as context:
        identity = worker_identity(uuid, 1, "a" * 8, 0)
        with raw_dealer(context, read(herd.connection_file), identity) as socket:
            socket.linger = 1_000
            for old, new in swaps:
                socket.send_multipart([frame.replace(old, new) for frame in frames])
            until(lambda: re.search(r"\(the \d\. in all\)", herd.said()), "they are counted")


def test_five_hundred_at_once(herds: Herds) -> None:
    """3. All within five seconds, 99 of 100 within two, since each key takes milliseconds, and 50 MiB.

    None of them beats, and the first may wait for the last as long as that takes: silence is no reason to be lost."""
    herd = herds(f"lost_after_s={2 * HANG_S:g}")
    coordinator = psutil.Process(herd.coordinator().pid)
    before = coordinator.memory_info().rss
    connection = read(herd.connection_file)
    keys = caller_keys(connection, "worker")
    with ExitStack() as closing:
        waiting: dict[DealerSocket, tuple[Channel, float]] = {}
        channels: dict[DealerSocket, Channel] = {}
        took_s: list[float] = []
        for number in range(CROWD):
            message = register(f"00000000-0000-4000-8000-{number:012x}")
            socket = DealerSocket(connection.address, worker_identity(message.worker, 1, "a" * 8, 0), keys)
            closing.callback(socket.close)
            waiting[socket] = (Channel(), time.monotonic())
            channels[socket] = waiting[socket][0]
            socket.send(waiting[socket][0].post(message, time.monotonic()))
        end_s = time.monotonic() + HANG_S
        while waiting and time.monotonic() < end_s:
            for socket, (_, sent_s) in list(waiting.items()):
                event = socket.receive()
                if isinstance(event, Arrival) and isinstance(event.envelope.message, Registered):
                    took_s.append(time.monotonic() - sent_s)
                    del waiting[socket]
        assert not waiting
        grown = coordinator.memory_info().rss - before
        p99_s = float(np.quantile(took_s, 0.99))
        print(f"3: p99 {p99_s:.3f} s, the last {max(took_s):.3f} s, {grown / 2**20:.1f} MiB")
        assert within(max(took_s), 5.0)
        assert within(p99_s, 2.0)
        assert grown < 50 * 2**20
        assert len(herd.members()) == CROWD
        for socket, channel in channels.items():
            socket.send(channel.post(Bye("it was a test"), time.monotonic()))
        until(lambda: not herd.members(), "all have left")
    herd.shut_down()


def test_a_flood_ahead_of_the_beats_is_no_reason_to_die(herds: Herds) -> None:
    """11. Ten thousand messages a turn and more, for a while: workers that beat are not lost."""
    herd = herds("lost_after_s=3")
    herd.coordinator()
    connection = read(herd.connection_file)
    with ExitStack() as closing:
        for _ in range(4):
            closing.enter_context(link(herd, register(str(uuid4())))).start(HANG_S)
        flooder = DealerSocket(
            connection.address, worker_identity(str(uuid4()), 1, "a" * 8, 0), caller_keys(connection, "worker")
        )
        closing.callback(flooder.close)
        channel, sent, end_s = Channel(), 0, time.monotonic() + FLOOD_S
        while time.monotonic() < end_s:
            for _ in range(10_000):
                flooder.send(channel.post(Beat(0, "", 0, 0, 0.0), time.monotonic()))
                sent += 1
            flooder.receive()
        until(lambda: len(herd.members()) == 4, "all four are there")
        print(f"11: {sent} messages in {FLOOD_S:g} s")
    assert "is lost" not in herd.said()
    herd.shut_down()


@pytest.mark.faults_long
def test_beats_of_a_large_herd_cost_little_and_nobody_is_lost() -> None:
    """12. Simulated workers on one real coordinator. (Short: tests/coordinator/test_scale.py.)"""
    sizes = ("--workers", str(WORKERS), "--seconds", str(WATCHED_S))
    watched = subprocess.run(
        [sys.executable, "-m", "remuda.benchmarks.thousand_workers", *sizes],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **THIS_CHECKOUT},
    )
    seen: dict[str, float] = json.loads(watched.stderr.splitlines()[-1])
    growth = seen["rss_after_mib"] / seen["rss_before_mib"] - 1
    print(
        f"12: {WORKERS} workers: registered within {seen['registered_p99_s']:.3f} s (p99), {seen['beats_per_s']:.0f} "
        f"beats/s cost {seen['cores']:.3f} cores, memory {100 * growth:+.1f} % in {WATCHED_S:g} s"
    )
    assert seen["alive"] == WORKERS
    assert growth < 0.05
    assert within(seen["cores"], 0.5)
    assert within(seen["beats_per_s"], 220), "two hundred, and how they happen to fall"
    assert within(seen["registered_p99_s"], 4.0)
