"""Effective training time on Ray: as effective_training, and a node of the cluster is lost, too.

`remuda launch --on ray` joins a Ray cluster of three nodes, emulated on this machine. The learner and the evaluator are
on the first, where `launch` runs its coordinator, too; two collectors are on the others, each of which has room for
both. The schedule kills the coordinator, a collector, the evaluator and the learner (kill -9), and a node with
collectors, with all its processes, as a power cut does: each once before any is hit again. Ray starts workers again. A
node that was lost is replaced by another one after ten seconds, as by whoever rents the machines; `launch` starts its
coordinator again.

What counts as effective, the time in peace before and after, the counters that are checked at the end and the variables
that make it shorter are those of effective_training; the time with kills is 15 minutes. With `--peers` the share that
is kept is compared with that of RLlib: see `peers/rllib/effective_training.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec

from remuda.benchmarks.effective_training import CONFIG
from remuda.benchmarks.exact_counters import check_exact
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.herd import REMUDA, ROOT
from remuda.benchmarks.kill_schedule import VICTIMS
from remuda.benchmarks.peers import peer
from remuda.benchmarks.training_kept import IsBack, Plan, Watched, kept_figures, plan, print_tables
from remuda.benchmarks.watching import WorksAgain, busy, chosen, counts_again, watch
from remuda.client.client import Client
from remuda.config.load import load_config
from remuda.tests.cluster.ray_cluster import RayCluster, ray_cluster
from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import Status, WorkerStatus

NODE = "node"
ROLES = (*VICTIMS, NODE)
ROOM = "paddock"
"""A resource of which the nodes for collectors have some."""
NODES: Sequence[dict[str, float]] = ({"CPU": 2}, {ROOM: 2}, {ROOM: 2})
COLLECTORS = 2
REPLACED_AFTER_S = 10.0
"""A node that was lost."""
ANSWER_DEADLINE_S = 1.0
END_DEADLINE_S = 120.0
MINUTES = 15.0
"""In which everybody is hit three times."""
LEAST_RATIO = 0.9


class RayHerd:
    """`remuda launch --on ray` of configs/effective_training.yaml. A WatchedHerd."""

    def __init__(self, folder: Path, cluster: RayCluster, settings: Sequence[str]) -> None:
        """`settings` go over the config; `folder` is for the run and for temporary files, which have short paths."""
        self.run = folder / "run"
        self._folder = folder
        self._cluster = cluster
        self._settings = settings
        self._launch: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self._errands = ThreadPoolExecutor(1)
        """The cluster does one thing after the other."""
        self._replacement: Future[None] | None = None

    def start(self) -> None:
        """Type the command."""
        resources = {"num_cpus": 0, "custom": {ROOM: 1}}
        settings = (
            *self._settings,
            f"launch.ray.address={json.dumps(self._cluster.address)}",
            f"launch.ray.collector={json.dumps(resources)}",
        )
        command = [*REMUDA, "launch", str(CONFIG), "--run-dir", str(self.run), "--on", "ray"]
        command += [part for setting in settings for part in ("--set", setting)]
        with (self._folder / "launch.log").open("wb") as log:
            self._launch = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self._folder)},
            )

    def serve(self) -> None:
        """See WatchedHerd: Ray and launch start all again. Raises RuntimeError if launch has ended."""
        if self._replacement is not None and self._replacement.done():
            self._replacement.result()
            self._replacement = None
        if self._launch is None or self._launch.poll() is not None:
            raise RuntimeError(f"remuda launch has ended: {self._said()}")

    def status(self) -> Status | None:
        """See WatchedHerd."""
        try:
            if self._client is None:
                file = next(self._folder.glob("remuda-????????/connection.json"), None)
                if file is None:
                    return None
                self._client = Client(file, answer_deadline_s=ANSWER_DEADLINE_S)
            return self._client.status()
        except (UnreachableError, ConnectionFileError):
            return None

    def hit(self, role: str, choice: float, status: Status) -> IsBack | None:
        """See WatchedHerd."""
        data, train_iter = self.run / "data", status.experiments[0].train_iter
        if role == "coordinator":
            os.kill(status.coordinator.pid, signal.SIGKILL)
            return counts_again(status)
        worker = chosen(busy(status, "collector" if role == NODE else role), choice)
        if worker is None:
            return None
        if role != NODE:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            return WorksAgain(worker, data, train_iter)
        lost = self._lose_node(worker, busy(status, "collector"))
        again = [WorksAgain(each, data, train_iter) for each in lost]
        return (lambda status: all([each(status) for each in again])) if again else None

    def stop(self) -> None:
        """End the run in order. Raises RuntimeError where that fails."""
        assert self._launch is not None, "stop comes after start"
        self._forget_client()
        self._launch.send_signal(signal.SIGINT)
        if self._launch.wait(END_DEADLINE_S):
            raise RuntimeError(f"remuda launch ended with status {self._launch.returncode}: {self._said()}")

    def end(self) -> None:
        """By force, if it has not ended. May be called again."""
        self._forget_client()
        if self._launch is not None:
            self._launch.kill()  # the lifeline that breaks then ends everything else
            self._launch.wait()
        self._errands.shutdown()

    def _lose_node(self, worker: WorkerStatus, collectors: Sequence[WorkerStatus]) -> list[WorkerStatus]:
        """Kill the node of a worker, and have it replaced later; returns the collectors that were there."""
        if self._replacement is not None:
            return []
        actors: dict[str, tuple[int, int]] = self._errands.submit(self._cluster.ask, "actors").result()
        node_of_pid = {pid: node for node, pid in actors.values()}
        node = node_of_pid.get(worker.pid)
        if not node:
            return []
        self._replacement = self._errands.submit(self._replace, node)
        return [each for each in collectors if node_of_pid.get(each.pid) == node]

    def _replace(self, node: int) -> None:
        self._cluster.ask(f"kill {node}")
        time.sleep(REPLACED_AFTER_S)
        self._cluster.ask(f"add {json.dumps({ROOM: 2})}")

    def _said(self) -> str:
        return (self._folder / "launch.log").read_text(errors="replace")[-2_000:]

    def _forget_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


@contextmanager
def ray_herd(counts: str) -> Generator[RayHerd]:
    """On a cluster of its own, all of which is gone afterwards; `counts` is a folder of the herd's."""
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as place, ray_cluster(NODES) as cluster:
        folder = Path(place)
        herd = RayHerd(folder, cluster, [f"env.kwargs.counts={folder / counts}"])
        try:
            herd.start()
            yield herd
        finally:
            herd.end()


def watched(plan: Plan) -> Watched:
    """A herd on a Ray cluster of its own, from its start to its end. Raises InexactError for a wrong counter."""
    with ray_herd("counts") as herd:
        seen = watch(herd, plan)
        herd.stop()
        print_tables(seen)
        lost = len(seen.collector_pids) - COLLECTORS
        config = load_config(CONFIG).config
        found = check_exact(herd.run, config, herd.run.parent / "counts", seen.collector_pids, lost=lost)
    print(found, file=sys.stderr, flush=True)
    return seen


def figures(peers: bool) -> list[Figure]:
    """What is kept of steps and updates; with the peer, both systems' shares of environment steps."""
    if find_spec("ray") is None:
        raise RuntimeError("this needs Ray: pip install 'remuda[ray]'")
    to_do = plan(ROLES, MINUTES)
    if not peers:
        return kept_figures("effective_ray", watched(to_do), LEAST_RATIO)

    def ours() -> float:
        seen = watched(to_do)
        return seen.killed_steps_per_s / seen.peace_steps_per_s

    times = msgspec.json.encode({"peace_s": to_do.peace_s, "duration_s": to_do.duration_s, "kills": to_do.kills})
    deadline_s = to_do.end_s + 900.0
    return compare(
        f"effective_ray: share of env steps kept, {to_do.how}",
        unit="share",
        goal=">= 1",
        ours=ours,
        references={"rllib": peer("rllib", "effective_training", times.decode(), deadline_s=deadline_s)},
        n=1,
    )


if __name__ == "__main__":
    main(figures)
