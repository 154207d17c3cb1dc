"""A launcher of your own: starts the commands of a run. On a cluster every command would be a job.

    remuda launch examples/cartpole_dqn.yaml --on custom_launcher:Commands

The module is found in the folder of the config.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from remuda.deploy.launcher import LaunchError, LaunchRequest, WorkerCounts
from remuda.wire.connection_file import ConnectionFileError, wait_for


class Commands:
    """Starts a coordinator and workers as separate commands.

    The coordinator ends with the run. `remuda coordinator` would own the runs folder, and refuse both a second launch
    there and `remuda launch --resume` after a crash.
    """

    def __init__(self, request: LaunchRequest) -> None:
        if request.profile is not None:
            raise ValueError("this launcher makes no profiles")
        self._request = request
        self._folder = Path(tempfile.mkdtemp())  # on a cluster, a folder that all machines see
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def connection_file(self) -> Path:
        return self._folder / "connection.json"

    def _commands(self, workers: WorkerCounts) -> Iterator[list[str]]:
        limits = [part for limit in self._request.limits for part in ("--limit", limit)]
        where = ["--runs-dir", str(self._request.runs_dir)]
        python = [sys.executable, "-P", "-m"]
        yield [*python, "remuda.coordinator", *where, *limits]
        counts = {"collector": workers.collectors, "evaluator": workers.evaluators, "learner": workers.learners}
        counts |= {"reanalyzer": workers.reanalyzers, "inference": workers.inference}
        patience = ["--coordinator-timeout", str(self._request.settings.coordinator_timeout_s)]
        for role, count in counts.items():
            if count > 0:
                yield [*python, "remuda.cli", "worker", role, "--count", str(count), *where, *patience]

    def planned(self, workers: WorkerCounts) -> str:
        return "".join(f"{shlex.join(command)}\n" for command in self._commands(workers))

    def start(self, workers: WorkerCounts, *, given_up: Callable[[], bool]) -> None:
        for command in self._commands(workers):
            self._start([*command, "--connection-file", str(self.connection_file)])
        try:
            wait_for(self.connection_file, deadline_s=60.0, given_up=given_up)
        except ConnectionFileError as error:
            raise LaunchError(f"the coordinator did not start: {error}; see {self._folder}") from error

    def _start(self, command: list[str]) -> None:
        with (self._folder / f"{len(self._processes)}.txt").open("wb") as output:
            # a session of its own: Ctrl-C must reach `remuda launch` alone, which then stops the run in order
            self._processes.append(subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True))

    def check(self) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                said = (self._folder / f"{number}.txt").read_text(errors="replace")[-2_000:]
                raise LaunchError(f"{process.args!r} ended with exit code {process.returncode}\n{said}")

    def wait_for_coordinator(self, deadline_s: float) -> bool:
        try:
            self._processes[0].wait(deadline_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        for process in self._processes:
            process.kill()  # a killed `remuda worker` takes its workers along

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Commands:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
