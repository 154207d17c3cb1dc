"""Real Ray, for tests: clusters of several nodes on this machine, and what Ray has left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from remuda.tests.patience import HANG_S, until

PATIENCE = {
    "RAY_raylet_start_wait_time_s": "150",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_gcs_server_request_timeout_seconds": "120",
    "RAY_worker_register_timeout_seconds": "150",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_worker_niceness": "0",  # 15 by default, with which a busy machine hardly runs them
}
"""For a machine that has other work: a node that does not answer soon is not dead."""


@dataclass(frozen=True)
class RayCluster:
    """A cluster that tests/cluster/ray_nodes.py keeps."""

    process: subprocess.Popen[str]
    address: str
    folder: Path
    """Where Ray, and workers on its nodes, keep temporary files."""

    def ask(self, command: str) -> Any:
        """Have a command of ray_nodes.Nodes carried out; returns its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return _answer(self.process)

    def node_of(self, name: str) -> int | None:
        """The number of the node that an actor lives on."""
        found = self.ask("actors").get(name)
        return None if found is None else found[0]


@contextmanager
def ray_cluster(sizes: Sequence[Mapping[str, float]]) -> Generator[RayCluster]:
    """A cluster with nodes of these sizes, the head first; all of it is gone afterwards."""
    before = ray_processes()
    folder = short_folder("ray-")
    command = [sys.executable, "-P", "-m", "remuda.tests.cluster.ray_nodes", *map(json.dumps, sizes)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **PATIENCE, "TMPDIR": str(folder)},
        start_new_session=True,
    )
    try:
        yield RayCluster(process, _answer(process), folder)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        end_ray(before)
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        with suppress(json.JSONDecodeError):  # Ray prints warnings as well
            return json.loads(line)
    raise AssertionError(f"ray_nodes has ended with {process.wait(HANG_S)}")


def short_folder(prefix: str) -> Path:
    """For sockets, whose paths have at most 107 characters."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))


def ray_processes() -> set[psutil.Process]:
    """All of Ray's processes on this machine, workers included."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            ours = any(word.startswith("ray::") or "/site-packages/ray/" in word for word in words)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
    return found


def nothing_left_of_ray(before: set[psutil.Process]) -> bool:
    """Whether all that was started since then is gone."""
    return not ray_processes() - before


def end_ray(before: set[psutil.Process]) -> None:
    """End what a failed test has left of Ray."""
    for process in ray_processes() - before:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    until(lambda: nothing_left_of_ray(before), "the end of Ray")
