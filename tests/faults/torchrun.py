"""A learner of several ranks, started by torchrun: one agent for each host."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import psutil

from remuda.tests.faults.herd import Herd
from remuda.tests.parallel.command import REMUDA
from remuda.tests.patience import until

RESTARTS = 3


def agent(
    endpoint: str, *, hosts: int, ranks_per_host: int, connection_file: os.PathLike[str], runs_dir: os.PathLike[str]
) -> list[str]:
    """The command of an agent: all of a learner have the same endpoint, which the first of them serves."""
    places = ["--nnodes", hosts, "--nproc-per-node", ranks_per_host, "--max-restarts", RESTARTS]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "horses"]
    worker = ["worker", "learner", "--connection-file", connection_file, "--runs-dir", runs_dir]
    command = [sys.executable, "-m", "torch.distributed.run", *places, *meeting, "--no-python", REMUDA, *worker]
    return [str(part) for part in command]


def start_agent(herd: Herd, endpoint: str, *, hosts: int, ranks_per_host: int) -> psutil.Process:
    """Start one on this machine."""
    command = agent(
        endpoint,
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        connection_file=herd.workers_file,
        runs_dir=herd.runs,
    )
    return psutil.Process(herd.start("torchrun", *command, env={"OMP_NUM_THREADS": "1"}).pid)


def ranks(agents: Mapping[str, psutil.Process]) -> dict[int, psutil.Process]:
    """The processes of all ranks that have begun, by their rank."""
    found: dict[int, psutil.Process] = {}
    for each in agents.values():
        for child in each.children():
            try:
                found[int(child.environ()["RANK"])] = child
            except (psutil.NoSuchProcess, KeyError):
                continue  # it has just ended, or not yet begun
    return found


def wait_for_rank(
    agents: Mapping[str, psutil.Process], rank: int, besides: psutil.Process | None = None
) -> psutil.Process:
    """A rank's process, or the one after `besides`."""
    until(lambda: ranks(agents).get(rank) not in (None, besides), f"rank {rank} is there")
    return ranks(agents)[rank]
