"""A learner of several ranks, started by torchrun: one agent for each host."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import psutil

from remuda.tests.faults.herd import Herd
from remuda.tests.patience import until
from remuda.tests.warm.program import REMUDA

RESTARTS = 3


def agent(endpoint: str, *, hosts: int, ranks_per_host: int, worker: Sequence[object]) -> list[str]:
    """The command of an agent: all of a learner have the same endpoint, which the first of them serves. `worker`: the
    options of `remuda worker learner`."""
    places = ["--nnodes", hosts, "--nproc-per-node", ranks_per_host, "--max-restarts", RESTARTS]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "horses"]
    rank = ["--no-python", REMUDA, "worker", "learner", *worker]
    return [str(part) for part in (sys.executable, "-m", "torch.distributed.run", *places, *meeting, *rank)]


def start_agent(herd: Herd, endpoint: str, *, hosts: int, ranks_per_host: int) -> psutil.Process:
    """Start one on this machine."""
    worker = ("--connection-file", herd.workers_file, "--runs-dir", herd.runs)
    command = agent(endpoint, hosts=hosts, ranks_per_host=ranks_per_host, worker=worker)
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
