"""A herd over three hosts with addresses of their own, with and without a shared folder; a link is cut meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.tests.cluster.hosts import Hosts, can_make_hosts
from remuda.tests.faults.herd import Herd, assert_exact
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.program import REMUDA
from remuda.wire import connection_file

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not can_make_hosts(), reason="needs root and iproute2, for network namespaces"),
]

LONG = os.environ.get("REMUDA_CLUSTER") == "long"
CUT_S = 60.0 if LONG else 7.0
"""How long the link of a host is cut."""
LOST_AFTER_S = 90.0
"""Longer than that: the same leases go on."""
PORT, STREAM_PORT = 5555, 5556
CHUNK, VECTOR = 32, 4
IN_WORK = 3 * (CHUNK + VECTOR - 1)
"""What a collector may have in work that is lost with its lease: two chunks on their way, and one being filled."""
SETTINGS: dict[str, dict[str, object]] = {
    "env": {**CONFIG["env"], "kwargs": {"pause_s": 0.002}},
    "stop": {"max_env_steps": 8_000},
    "buffer": {**CONFIG["buffer"], "capacity": 100_000},
    "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 2_000},
}
STRANGER = """
import os, random, socket, sys, time
import zmq
host, ports, server_key = sys.argv[1], [int(port) for port in sys.argv[2:4]], bytes.fromhex(sys.argv[4])
context = zmq.Context()
for number in range(2_000):
    port = ports[number % 2]
    try:
        with socket.create_connection((host, port), timeout=1) as plain:
            plain.sendall(random.choice([b"GET / HTTP/1.1\\r\\n\\r\\n", os.urandom(300), b""]))
    except OSError:
        pass
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    if number % 3:
        dealer.curve_serverkey = server_key if number % 3 == 1 else os.urandom(32)
        dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
    dealer.connect(f"tcp://{host}:{port}")
    dealer.send_multipart([b"R\\x07", os.urandom(50)])
    dealer.poll(200)
    dealer.close()
    print(number, flush=True)
"""
"""Somebody without a key that is let in: knocks at both doors, in every way, five times a second."""


@pytest.fixture(scope="module")
def hosts() -> Generator[Hosts]:
    with Hosts() as made:
        yield made


class Wide:
    """A herd whose coordinator and learner are on host 1, and whose other workers are on hosts 2 and 3."""

    def __init__(self, hosts: Hosts, root: Path, *, shared: bool, lost_after_s: float) -> None:
        self.hosts, self.shared = hosts, shared
        self.user = UserFolder.make(root / "user", SETTINGS)
        self.herd = Herd(root / "herd", f"lost_after_s={lost_after_s}")
        self.herd.options = ("--bind", f"tcp://0.0.0.0:{PORT}", "--stream-port", str(STREAM_PORT))

    def gather(self) -> None:
        self.herd.coordinator()
        found = connection_file.read(self.herd.connection_file)
        assert found.address == f"tcp://{self.hosts.address(1)}:{PORT}", "the address that others reach"
        self.herd.workers(collectors=0, evaluators=0, learners=1)
        self._workers(2, "--collectors", "1")
        self._workers(3, "--collectors", "1", "--evaluators", "1")
        self.herd.wait_members(4)

    def strange(self) -> subprocess.Popen[bytes]:
        """Start somebody on host 3 who has no key."""
        key = connection_file.read(self.herd.connection_file).server_key
        knock = (sys.executable, "-c", STRANGER, self.hosts.address(1), PORT, STREAM_PORT, key, self.herd.runs)
        return self.herd.start("stranger", *self.hosts.command(3, *knock))

    def _workers(self, number: int, *counts: str) -> None:
        """Start a nanny on a host. Without the shared folder it has a connection file that was made for it, and nothing
        else: the runs folder with its keys cannot be seen there at all."""
        nanny = (sys.executable, "-m", "remuda.deploy.nanny", *counts)
        if self.shared:
            own = ("--connection-file", self.herd.connection_file)
            self.herd.start(f"host{number}", *self.hosts.command(number, *nanny, *own))
            return
        home = self.herd.elsewhere / f"host{number}"
        home.mkdir(parents=True)
        file = home / "given.json"
        invite = ("keys", "invite", f"host{number}", file, "--runs-dir", self.herd.runs)
        subprocess.run([REMUDA, *map(str, invite)], check=True, capture_output=True)
        env = {"HOME": str(home), "TMPDIR": str(home)}
        command = self.hosts.command(number, *nanny, "--connection-file", file, hide=[str(self.herd.runs)])
        self.herd.start(f"host{number}", *command, env=env, cwd=home)


@pytest.mark.parametrize("shared", [False, True], ids=["without a shared folder", "with a shared folder"])
@pytest.mark.parametrize(
    "lost_after_s",
    [LOST_AFTER_S, pytest.param(10.0, marks=pytest.mark.skipif(not LONG, reason="long form"))],
    ids=["the leases go on", "the leases end"],
)
def test_three_hosts_are_exact_over_a_cut_link(hosts: Hosts, tmp_path: Path, shared: bool, lost_after_s: float) -> None:
    wide = Wide(hosts, tmp_path, shared=shared, lost_after_s=lost_after_s)
    try:
        hosts.on(1, lambda: run(wide))
    finally:
        hosts.mend(2)
        hosts.on(1, wide.herd.end)
    lost = 0 if lost_after_s > CUT_S else IN_WORK
    folder = wide.herd.runs / "horse"
    env_step = assert_exact(wide.herd, folder, wide.user, lost_at_most=lost)
    assert env_step >= 8_000
    logs = {path.name for path in (folder / "log" / "collector").iterdir()}
    assert logs == {f"{one.uuid}_{one.incarnation:06d}_logger.txt" for one in wide.herd.incarnations("collector")}
    incarnations = {one.incarnation for one in wide.herd.incarnations()}
    assert incarnations == {1}, "no process had to be started again"


def run(wide: Wide) -> None:
    """On host 1."""
    herd = wide.herd
    wide.gather()
    stranger = wide.strange()
    herd.submit(wide.user)
    herd.wait_env_step("horse", 1_500)
    assert wide.shared or herd.stream_server() is not None
    wide.hosts.cut(2)
    begin_s = time.monotonic()
    time.sleep(CUT_S)
    during = herd.experiment("horse").env_step
    wide.hosts.mend(2)
    herd.wait_members(4)
    print(f"the link was cut for {CUT_S:g} s; all were back {time.monotonic() - begin_s - CUT_S:.1f} s later")
    assert during >= 1_500, "the others go on"
    herd.wait_over("horse")
    assert stranger.poll() is None
    refusals = herd.status().coordinator.refusals
    assert refusals.no_key > 0
    assert refusals.unknown_key > 0
    assert refusals.forbidden == 0
    stranger.kill()
    stranger.wait(HANG_S)
    until(lambda: len(herd.members()) == 4, "nobody was confused")
    herd.shut_down()
