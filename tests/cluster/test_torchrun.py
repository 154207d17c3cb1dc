"""A learner with a rank on each of two hosts: one does not see the runs folder, its link is cut, and it is killed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from remuda.tests.cluster.hosts import Hosts, can_make_hosts
from remuda.tests.faults.herd import Herd, assert_exact, kill
from remuda.tests.faults.torchrun import agent, ranks, wait_for_rank
from remuda.tests.parallel.reading import texts
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import until
from remuda.tests.warm.program import REMUDA

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not can_make_hosts(), reason="needs root and iproute2, for network namespaces"),
]

CUT_S = 7.0
"""How long the link of host 2 is cut; ranks wait for limits.rank_s."""
PORT, MEETING_PORT = 5555, 29500
SETTINGS: dict[str, dict[str, object]] = {
    "learner": {**CONFIG["learner"], "ranks": 2},
    "env": {**CONFIG["env"], "kwargs": {"pause_s": 0.002}},
    "stop": {"max_env_steps": 6_000},
    "buffer": {**CONFIG["buffer"], "capacity": 100_000},
    "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 3_000},
}


@pytest.fixture
def hosts() -> Generator[Hosts]:
    with Hosts(2) as made:
        yield made


class TwoHosts:
    """Coordinator, collectors and rank 0 on host 1; rank 1 on host 2, which has a connection file and nothing else."""

    def __init__(self, hosts: Hosts, root: Path) -> None:
        self.hosts = hosts
        self.user = UserFolder.make(root / "user", SETTINGS)
        self.herd = Herd(root / "herd", "lost_after_s=90")
        self.herd.options = ("--bind", f"tcp://0.0.0.0:{PORT}")
        self.file = root / "worker.json"
        self.agents: dict[str, psutil.Process] = {}

    def gather(self) -> None:
        self.herd.coordinator()
        invite = ("keys", "invite", "learner", self.file, "--runs-dir", self.herd.runs)
        subprocess.run([REMUDA, *map(str, invite)], check=True, capture_output=True)
        self._start_agent(1, "--runs-dir", self.herd.runs)
        self._start_agent(2, hide=str(self.herd.runs))
        self.herd.workers(learners=0)
        self.herd.wait_members(4)

    def learned(self, times: int) -> list[str]:
        """What the learners have said of their ranks, once so many have said it."""
        log = self.herd.runs / "horse" / "log" / "learner" / "learner_logger.txt"
        until(lambda: len(texts(log, "world_size 2")) >= times, f"{times} learners had two ranks\n{self.herd.said()}")
        return texts(log, "world_size 2")

    def _start_agent(self, number: int, *options: object, hide: str | None = None) -> None:
        self.herd.elsewhere.mkdir(exist_ok=True)
        command = agent(
            f"{self.hosts.address(1)}:{MEETING_PORT}",
            hosts=2,
            ranks_per_host=1,
            worker=("--connection-file", self.file, *options),
        )
        place = command.index("--no-python")
        command[place:place] = ["--local-addr", self.hosts.address(number), "--rdzv-conf", f"is_host={2 - number}"]
        there = self.hosts.command(number, *command, hide=[] if hide is None else [hide])
        home = {"HOME": str(self.herd.elsewhere), "OMP_NUM_THREADS": "1"}
        started = self.herd.start(f"torchrun{number}", *there, env=home, cwd=self.herd.elsewhere)
        self.agents[str(number)] = psutil.Process(started.pid)


def test_two_hosts_are_exact_over_a_cut_link_and_a_killed_rank(hosts: Hosts, tmp_path: Path) -> None:
    two = TwoHosts(hosts, tmp_path)
    try:
        hosts.on(1, lambda: run(two))
    finally:
        hosts.mend(2)
        hosts.on(1, two.herd.end)
        for started in two.agents.values():
            end(started)
    assert assert_exact(two.herd, two.herd.runs / "horse", two.user) >= 6_000


def run(two: TwoHosts) -> None:
    """On host 1."""
    herd = two.herd
    two.gather()
    herd.submit(two.user)
    herd.wait_env_step("horse", 1_000)
    before = two.learned(1)
    two.hosts.cut(2)
    time.sleep(CUT_S)
    two.hosts.mend(2)
    herd.wait_env_step("horse", 2_000)
    assert two.learned(1) == before, "the ranks have waited for each other"

    first = ranks(two.agents)
    kill(first[1].pid)
    wait_for_rank(two.agents, 0, besides=first[0])
    assert len(two.learned(2)) == 2
    herd.wait_over("horse")
    herd.shut_down()


def end(started: psutil.Process) -> None:
    """What is left of an agent and its ranks."""
    try:
        for process in (*started.children(recursive=True), started):
            process.kill()
    except psutil.NoSuchProcess:
        return
