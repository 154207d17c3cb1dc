"""Effective training time of a herd over three hosts: as effective_training, and the link of a host is cut, too.

The hosts are network namespaces of this machine with addresses of their own, behind a switch. The coordinator, which a
service manager starts again one second after its end, and the learner are on the first, a collector on the second, a
collector and the evaluator on the third. The schedule kills the coordinator, a collector, the evaluator and the learner
(kill -9), and pulls the cable of the second or third host out for a sixth of the interval between two of these: each
once before any is hit again. A worker of which nothing is heard is given up after 90 s (`--limit lost_after_s=90`, as
docs/cluster.md advises where a network fails now and then).

It is measured twice: in one herd both hosts see the runs folder, in the other they have a connection file that was made
for them and nothing else. The shared folder itself is not reached over the network that is cut; what is cut are all
messages, and in the second herd all files.

What counts as effective, the time in peace before and after, the counters that are checked at the end and the variables
that make it shorter are those of effective_training; the time with kills is 15 minutes, each time. It needs root, for
the namespaces.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from remuda.benchmarks.effective_training import train_and_hit
from remuda.benchmarks.figure import Figure, main
from remuda.benchmarks.herd import REMUDA
from remuda.benchmarks.kill_schedule import VICTIMS
from remuda.benchmarks.served_herd import ServedHerd
from remuda.benchmarks.training_kept import IsBack, Plan, Watched, kept_figures, plan
from remuda.benchmarks.watching import DeliversAgain
from remuda.tests.cluster.hosts import Hosts, can_make_hosts
from remuda.wire.messages import Status, WorkerStatus

LINK = "link"
PORT, STREAM_PORT = 5555, 5556
LOST_AFTER_S = 90.0
CUT_SHARE = 1 / 6
"""How long a link is cut, as a share of the interval between two kills."""
ROLES = {2: ("collector",), 3: ("collector", "evaluator")}
"""The workers of each host but the first."""
MINUTES = 15.0
"""In which everybody is hit three times."""
LEAST_RATIO = 0.9


class HostsHerd(ServedHerd):
    """A ServedHerd on three hosts. To be used by a thread that is on the first."""

    def __init__(self, folder: Path, hosts: Hosts, *, shared: bool, cut_s: float) -> None:
        super().__init__(
            folder,
            options=(
                *("--bind", f"tcp://0.0.0.0:{PORT}", "--stream-port", str(STREAM_PORT)),
                *("--limit", f"lost_after_s={LOST_AFTER_S:g}"),
            ),
        )
        self._hosts, self._shared, self._cut_s = hosts, shared, cut_s
        self._nannies: dict[int, int] = {}
        """Host of each nanny, by process id."""
        self._mend_due_s: dict[int, float] = {}
        """Of hosts whose link is cut."""

    def serve(self) -> None:
        """See ServedHerd; and plug in what is to be plugged in."""
        super().serve()
        for number, due_s in list(self._mend_due_s.items()):
            if time.monotonic() >= due_s:
                self._hosts.mend(number)
                del self._mend_due_s[number]

    def hit(self, role: str, choice: float, status: Status) -> IsBack | None:
        """See ServedHerd; or cut the link of a host."""
        if role != LINK:
            return super().hit(role, choice, status)
        number = [*ROLES][int(choice * len(ROLES))]
        there = [worker for worker in status.workers if self._host_of(worker) == number and worker.state == "busy"]
        if len(there) < len(ROLES[number]):
            return None  # not back from its last death
        self._hosts.cut(number)
        self._mend_due_s[number] = time.monotonic() + self._cut_s
        data = Path(status.experiments[0].run_dir) / "data"
        deliver = [DeliversAgain(worker, data) for worker in there]
        return lambda status: number not in self._mend_due_s and all([each(status) for each in deliver])

    def end(self) -> None:
        """See ServedHerd; a host that is cut off would not be told."""
        for number in self._mend_due_s:
            self._hosts.mend(number)
        self._mend_due_s.clear()
        super().end()

    def _host_of(self, worker: WorkerStatus) -> int | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            return self._nannies.get(psutil.Process(worker.pid).ppid())
        return None

    def _start_workers(self) -> None:
        self._start_worker(1, "learner", self._connection_file)
        for number, roles in ROLES.items():
            file = self._connection_file if self._shared else self._invited(number)
            for role in roles:
                self._start_worker(number, role, file)

    def _start_worker(self, number: int, role: str, file: Path) -> None:
        worker = [*REMUDA, "worker", role, "--connection-file", str(file)]
        if number == 1 or self._shared:
            command, env, cwd = self._hosts.command(number, *worker), None, None
        else:
            command = self._hosts.command(number, *worker, hide=[str(self.runs)])
            env, cwd = {"HOME": str(file.parent), "TMPDIR": str(file.parent)}, file.parent
        nanny = self._start(f"{role}{number}", *command, env=env, cwd=cwd)
        self._nannies[nanny.pid] = number
        self._others.append(nanny)

    def _invited(self, number: int) -> Path:
        """A connection file for a host, in a folder of its own: all it has."""
        home = self._folder / f"host{number}"
        home.mkdir()
        file = home / "given.json"
        command = [*REMUDA, "keys", "invite", f"host{number}", str(file), "--runs-dir", str(self.runs)]
        subprocess.run(command, check=True, capture_output=True)
        return file


def watched(plan: Plan, *, shared: bool) -> Watched:
    """A herd over three hosts of its own, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder, Hosts() as hosts:
        herd = HostsHerd(Path(folder), hosts, shared=shared, cut_s=CUT_SHARE * plan.interval_s)

        def on_the_first() -> Watched:
            try:
                herd.start()
                return train_and_hit(herd, Path(folder) / "counts", plan)
            finally:
                herd.end()

        return hosts.on(1, on_the_first)


def figures(peers: bool) -> list[Figure]:
    """What is kept with and without a shared folder; RLlib is beside effective_ray."""
    if peers:
        return []
    if not can_make_hosts():
        raise RuntimeError("this needs root and iproute2, for network namespaces")
    found: list[Figure] = []
    for shared in (False, True):
        way = f"effective_hosts {'with' if shared else 'without'} a shared folder"
        print(way, file=sys.stderr, flush=True)
        found += kept_figures(way, watched(plan((*VICTIMS, LINK), MINUTES), shared=shared), LEAST_RATIO)
    return found


if __name__ == "__main__":
    main(figures)
