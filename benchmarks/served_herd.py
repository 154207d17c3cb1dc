"""A herd as on a server: `remuda coordinator`, started again when it ends, and `remuda worker` for each role."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from remuda.benchmarks.herd import REMUDA, until
from remuda.benchmarks.training_kept import IsBack
from remuda.benchmarks.watching import WorksAgain, busy, chosen, counts_again
from remuda.client.client import Client
from remuda.config.schema import ExperimentConfig
from remuda.wire import connection_file
from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import OVER, Status

START_DEADLINE_S = 120.0
END_DEADLINE_S = 30.0
OVER_DEADLINE_S = 120.0
ANSWER_DEADLINE_S = 1.0
WORKERS: Mapping[str, int] = MappingProxyType({"collector": 2, "evaluator": 1, "learner": 1})


class ServedHerd:
    """Coordinator and workers in one folder, and the service manager that starts the coordinator again."""

    def __init__(
        self,
        folder: Path,
        workers: Mapping[str, int] = WORKERS,
        restart_after_s: float = 1.0,
        options: Sequence[str] = (),
    ) -> None:
        """`options` are more options of `remuda coordinator`."""
        self.runs = folder / "runs"
        self._folder = folder
        self._workers = workers
        self._restart_after_s = restart_after_s
        self._options = options
        self._connection_file = self.runs / "connection.json"
        self._coordinator: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []
        self._restart_due_s: float | None = None
        self._client: Client | None = None

    def start(self) -> None:
        """Returns once all workers are there. Raises TimeoutError with what they have said."""
        self._coordinator = self._start_coordinator()
        until(lambda: self.status() is not None, "the coordinator answers", deadline_s=START_DEADLINE_S)
        self._start_workers()
        until(self._complete, "all workers are there", deadline_s=START_DEADLINE_S, pause_s=0.05)

    def client(self) -> Client:
        return Client(self._connection_file)

    def submit(self, config: ExperimentConfig) -> Path:
        """Hand a config in; returns its run folder."""
        with self.client() as client:
            return Path(client.submit(config).run_dir)

    def stop(self) -> None:
        """End the one run in order. Raises TimeoutError."""
        with self.client() as client:
            [run] = client.status().experiments
            client.stop(run.id)
            until(lambda: client.experiment(run.id).state in OVER, "the end of the run", deadline_s=OVER_DEADLINE_S)

    def serve(self) -> None:
        """What a service manager does, to be called now and then: start the coordinator again after a while."""
        assert self._coordinator is not None, "serve comes after start"
        if self._coordinator.poll() is None:
            return
        if self._restart_due_s is None:
            self._restart_due_s = time.monotonic() + self._restart_after_s
        elif time.monotonic() >= self._restart_due_s:
            self._restart_due_s = None
            self._coordinator = self._start_coordinator()

    def status(self) -> Status | None:
        """None where the coordinator is gone, or is not ready yet."""
        if not self._answers():
            return None
        try:
            if self._client is None:
                self._client = Client(self._connection_file, answer_deadline_s=ANSWER_DEADLINE_S)
            return self._client.status()
        except (UnreachableError, ConnectionFileError):
            return None

    def hit(self, role: str, choice: float, status: Status) -> IsBack | None:
        """Kill the coordinator, or a worker of this role that works for the run; see WatchedHerd."""
        if role == "coordinator":
            self.kill_coordinator()
            return counts_again(status)
        worker = chosen(busy(status, role), choice)
        if worker is None:
            return None  # not back from its last death
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        run = status.experiments[0]
        return WorksAgain(worker, Path(run.run_dir) / "data", run.train_iter)

    def kill_coordinator(self) -> None:
        assert self._coordinator is not None, "there is none before start"
        os.kill(self._coordinator.pid, signal.SIGKILL)
        self._coordinator.wait()

    def end(self) -> None:
        """In order, or else by force: whose nanny is killed ends by itself."""
        if self._client is not None:
            self._client.close()
            self._client = None
        processes = [*self._others, *([] if self._coordinator is None else [self._coordinator])]
        for process in processes:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_DEADLINE_S)
            process.kill()
            process.wait()

    def _start_workers(self) -> None:
        for role, count in self._workers.items():
            command = ("worker", role, "--count", str(count), "--connection-file", str(self._connection_file))
            self._others.append(self._start(role, *REMUDA, *command))

    def _answers(self) -> bool:
        if self._coordinator is None or self._coordinator.poll() is not None:
            return False
        try:
            return connection_file.read(self._connection_file).pid == self._coordinator.pid
        except ConnectionFileError:
            return False

    def _complete(self) -> bool:
        status = self.status()
        return status is not None and len(status.workers) == sum(self._workers.values())

    def _start_coordinator(self) -> subprocess.Popen[bytes]:
        own = ("--runs-dir", str(self.runs), "--connection-file", str(self._connection_file))
        return self._start("coordinator", *REMUDA, "coordinator", *own, *self._options)

    def _start(
        self, name: str, *command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """A process whose output goes to `<name>.log`."""
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=cwd or self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
            )


@contextmanager
def served_herd(folder: Path, workers: Mapping[str, int] = WORKERS) -> Generator[ServedHerd]:
    """A whole herd, ended whatever happens."""
    herd = ServedHerd(folder, workers)
    try:
        herd.start()
        yield herd
    finally:
        herd.end()
