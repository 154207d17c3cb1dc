"""Who wants to join: twins, five hundred at once, a flood ahead of the beats, a wall clock that jumps."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
import psutil
import pytest
from msgspec.structs import replace as changed

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, beside
from remuda.tests.faults.sizes import FLOOD_S, LONG_STEPS, TWINS, within
from remuda.tests.faults.test_processes import LONG
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.wire.channel import Channel
from remuda.wire.connection_file import read
from remuda.wire.conversation import RefusedError
from remuda.wire.keys.own import caller_keys
from remuda.wire.messages import PROTOCOL_VERSION, Bye, Leave, Register, Registered
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


def test_of_two_processes_with_one_uuid_one_stays(herds: Herds) -> None:
    """1. The second learns it within a second; one with a higher incarnation takes over. The registry holds one."""
    herd = herds()
    herd.coordinator()
    for _ in range(TWINS):
        uuid = str(uuid4())
        with link(herd, register(uuid)) as first, link(herd, changed(register(uuid), pid=1)) as second:
            first.start(HANG_S)
            begin_s = time.monotonic()
            with pytest.raises(RefusedError, match="already here as incarnation 1") as refused:
                second.start(HANG_S)
            assert refused.value.code == "superseded"
            assert within(time.monotonic() - begin_s, 1.0)
            with link(herd, register(uuid, 2)) as third:
                third.start(HANG_S)
                (member,) = herd.members()
                assert (member.uuid, member.incarnation) == (uuid, 2)
                told = first.receive(HANG_S)
                assert isinstance(told, Leave)
                assert told.reason == "incarnation 2 has taken over"
        until(lambda: not herd.members(), "all have left")
    herd.shut_down()


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
        for number in range(500):
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
        assert len(herd.members()) == 500
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
        from remuda.wire.messages import Beat

        while time.monotonic() < end_s:
            for _ in range(10_000):
                flooder.send(channel.post(Beat(0, "", 0, 0, 0.0), time.monotonic()))
                sent += 1
            flooder.receive()
        until(lambda: len(herd.members()) == 4, "all four are there")
        print(f"11: {sent} messages in {FLOOD_S:g} s")
    assert "is lost" not in herd.said()
    herd.shut_down()


JUMPS = """
import time
real, begin = time.time, time.monotonic()
time.time = lambda: real() + 3600.0 * (-1) ** int(time.monotonic() - begin)
"""


def test_a_wall_clock_that_jumps_kills_nobody(tmp_path: Path, herds: Herds) -> None:
    """10. An hour to and fro, each second, in every process."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(JUMPS)
    user = UserFolder.make(tmp_path / "user", LONG)
    herd = herds(env={"PYTHONPATH": beside(tmp_path / "clock")})
    herd.gather()
    run = herd.submit(user)
    herd.wait_over("horse")
    herd.shut_down()
    assert "is lost" not in herd.said()
    assert {one.incarnation for one in herd.incarnations()} == {1}
    assert assert_exact(herd, run, user) >= LONG_STEPS
