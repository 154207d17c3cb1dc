"""Coordinator on this machine, and workers as actors of a Ray cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from remuda.config.launching import RayConfig
from remuda.deploy.launcher import LaunchError, LaunchRequest, WorkerCounts
from remuda.deploy.local import LocalLauncher
from remuda.deploy.supervision import KeptProcess
from remuda.wire import connection_file

JOIN_DEADLINE_S = 180.0
"""Seconds to join a cluster, or to start one here."""
NODE_FILE = "node.txt"
"""Address of this node in the cluster, written after joining."""
SAID = "ray: "
"""Prefix of lines for the user in the output of the Ray process."""
_RAY_ADDRESS = "RAY_ADDRESS"


class RayPlan(BaseModel):
    """Arguments of `remuda.deploy.ray.herd`, without secrets: the list of processes shows them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    counts: dict[str, int]
    """Workers by role."""
    settings: RayConfig
    runs_dir: Path
    coordinator_timeout_s: float
    profile: Path | None = None

    @staticmethod
    def of(request: LaunchRequest, workers: WorkerCounts) -> RayPlan:
        """The plan for these workers; roles without workers are left out."""
        counts = {role.removesuffix("s"): count for role, count in asdict(workers).items() if count}
        return RayPlan(
            counts=counts,
            settings=request.settings.ray,
            runs_dir=request.runs_dir,
            coordinator_timeout_s=request.settings.coordinator_timeout_s,
            profile=request.profile,
        )


class RayLauncher(LocalLauncher):
    """Starts `remuda.coordinator` and `remuda.deploy.ray.herd`, the separate process for Ray.

    Both end with this process, as in LocalLauncher; Ray ends the actors after the end of the second process. A killed
    coordinator is started again, as workers are by Ray, and continues the run with the same workers.
    """

    def __init__(self, request: LaunchRequest) -> None:
        """Nothing is started or written. Raises LaunchError without Ray."""
        if find_spec("ray") is None:
            raise LaunchError(
                "launch.on: ray needs Ray, which is not installed here: pip install 'remuda[ray]', on each node of the "
                "cluster"
            )
        super().__init__(request)
        self._shown_bytes = 0
        """Shown bytes of the output of the Ray process."""
        self._coordinator: list[str] = []
        """The coordinator's command, without the bound address."""
        self._keeper = KeptProcess("coordinator")

    def planned(self, workers: WorkerCounts) -> str:
        """The command of the coordinator, and the actors by role."""
        plan = RayPlan.of(self._request, workers)
        actors = [f"{count} {role}: {_needs(plan.settings, role)}\n" for role, count in plan.counts.items()]
        where = plan.settings.address or os.environ.get(_RAY_ADDRESS) or "local"
        coordinator, *_ = super().planned(workers).splitlines()
        return "".join([f"{coordinator} --persistent --bind NODE_IP:0\n", f"actors of Ray at {where}:\n", *actors])

    def check(self) -> None:
        """Show the user the lines of the Ray process; raise LaunchError if either process has ended."""
        self._relay()
        super().check()

    def _start_processes(self, workers: WorkerCounts, given_up: Callable[[], bool]) -> None:
        assert self._folder is not None
        node = self._folder / NODE_FILE
        plan = RayPlan.of(self._request, workers).model_dump_json()
        python = [sys.executable, "-P", "-m", "remuda.deploy.ray.herd"]
        self._spawn("workers", [*python, "--plan", plan, "--node-file", str(node)])
        self._await(node, JOIN_DEADLINE_S, given_up, "Ray did not answer")
        self._coordinator = [*self._coordinator_command(), "--persistent", "--own-dir", str(self._folder)]
        self._start_coordinator(f"tcp://{node.read_text(encoding='ascii').strip()}:0")

    def _start_coordinator(self, address: str) -> None:
        self._spawn("coordinator", [*self._coordinator, "--bind", address])
        self._keeper.started(time.monotonic())

    def _has_ended(self, name: str, exit_code: int) -> None:
        """Restart a killed coordinator at the same address: workers without the connection file and the runs folder
        know no other address. A coordinator that ended by itself would do so again."""
        to_do = "give up"
        if name == "coordinator" and self.connection_file.exists():
            to_do = self._keeper.after(exit_code, time.monotonic(), self._request.say)
        if to_do == "give up":
            super()._has_ended(name, exit_code)
        if to_do == "start":
            self._start_coordinator(connection_file.read(self.connection_file).address)

    def _relay(self) -> None:
        if self._folder is None:
            return
        path = self._folder / "workers.log"
        if not path.exists():
            return
        with path.open("rb") as output:
            output.seek(self._shown_bytes)
            for line in output:
                if not line.endswith(b"\n"):
                    break
                self._shown_bytes += len(line)
                text = line.decode(errors="replace").rstrip()
                if text.startswith(SAID):
                    self._request.say(text)


def _needs(settings: RayConfig, role: str) -> str:
    needs = settings.of(role)
    amounts = {"num_cpus": needs.num_cpus, "num_gpus": needs.num_gpus, "memory_bytes": needs.memory_bytes or 0}
    return (
        ", ".join(f"{name} {amount:g}" for name, amount in {**amounts, **needs.custom}.items() if amount) or "nothing"
    )
