"""Environment steps per second of a herd of real processes whose environments sleep, so that these set the pace.

Coordinator, learner and collectors are the processes that users start. The collectors see the runs folder, or they are
told nothing of it and have only a copy of the connection file: then their chunks, logs and policies travel by stream,
here over the loopback interface.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from remuda.benchmarks.herd import until
from remuda.benchmarks.stand_ins import coordinator, python
from remuda.client.client import Client
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.wire import connection_file
from remuda.wire.messages import Status
from remuda.worker.process import ONE_THREAD

CONFIG = Path(__file__).parent / "configs" / "paced_herd.yaml"
NAME = "paced_herd"
START_DEADLINE_S = 300.0
END_DEADLINE_S = 60.0
CHUNKS_BEFORE = 2
"""Of each collector on average, before anything is measured."""
READ_INTERVAL_S = 0.2

Reading = tuple[float, int]
"""A moment of the monotonic clock, and how many environment steps were counted until then."""


@dataclass(frozen=True)
class Pace:
    """What the environments of one collector do, one after the other."""

    step_s: float
    """How long each step sleeps."""
    num_envs: int
    chunk_env_steps: int

    @property
    def steps_per_s(self) -> float:
        """Environment steps that one collector takes per second at most."""
        return 1 / self.step_s

    def config(self, collectors: int) -> ExperimentConfig:
        """The run of so many collectors, which begin together."""
        settings = {
            "env.kwargs": f"{{step_s: {self.step_s}}}",
            "env.num_envs": self.num_envs,
            "collector.count": collectors,
            "collector.minimum": collectors,
            "collector.chunk_env_steps": self.chunk_env_steps,
        }
        return load_config(CONFIG, overrides=[f"{name}={value}" for name, value in settings.items()]).config


def steps_per_s(pace: Pace, collectors: int, *, shared_folder: bool, window_s: float) -> float:
    """Environment steps per second that the coordinator counts over `window_s`, once all collectors are at work.

    Raises TimeoutError where they do not get there, and RuntimeError where the run does not go on."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        runs, elsewhere = Path(name) / "runs", Path(name) / "elsewhere"
        runs.mkdir()
        elsewhere.mkdir()
        file = stack.enter_context(coordinator(runs))
        copy = elsewhere / "given.json"
        connection_file.write(copy, msgspec.structs.replace(connection_file.read(file), runs_dir=""))
        stack.enter_context(_nanny(runs, file, "--learners", 1))
        stack.enter_context(_nanny(elsewhere, file if shared_folder else copy, "--collectors", collectors))
        client = stack.enter_context(Client(file))
        client.submit(pace.config(collectors), run_dir=runs / "run")
        begun = CHUNKS_BEFORE * pace.chunk_env_steps * collectors
        until(
            lambda: _at_work(client.status(), collectors) and client.experiment(NAME).env_step >= begun,
            f"{collectors} collectors at work",
            deadline_s=START_DEADLINE_S,
            pause_s=READ_INTERVAL_S,
        )
        if (streaming := _streaming(elsewhere)) != (0 if shared_folder else collectors):
            raise RuntimeError(f"{streaming} of {collectors} collectors do without the runs folder")
        return slope(_readings(client, window_s))


def slope(readings: Sequence[Reading]) -> float:
    """Steps per second: of the straight line through all readings, since what many collectors began together arrives
    together, and the first and the last reading alone would depend on that."""
    at_s, env_steps = (np.array(each, np.float64) for each in zip(*readings, strict=True))
    since_s, taken = at_s - at_s.mean(), env_steps - env_steps.mean()
    return float((since_s * taken).sum() / (since_s**2).sum())


def _readings(client: Client, window_s: float) -> list[Reading]:
    found: list[Reading] = []
    end_s = time.monotonic() + window_s
    while time.monotonic() < end_s:
        run = client.experiment(NAME)
        if run.state != "running":
            raise RuntimeError(f"the run is {run.state}: {run.reason}")
        found.append((time.monotonic(), run.env_step))
        time.sleep(READ_INTERVAL_S)
    return found


def _at_work(status: Status, collectors: int) -> bool:
    return sum(worker.role == "collector" and worker.state == "busy" for worker in status.workers) == collectors


def _streaming(temporary: Path) -> int:
    """How many workers have a folder of their own: those that do not see the runs folder."""
    return sum(1 for _ in temporary.glob("remuda-worker-*"))


@contextmanager
def _nanny(folder: Path, file: Path, *counts: object) -> Generator[None]:
    """Workers of one role, ended in order or else by force. `folder` is for their output and temporary files."""
    with (folder / "workers.log").open("wb") as output:
        process = subprocess.Popen(
            python("remuda.deploy.nanny", "--connection-file", str(file), *map(str, counts)),
            env={**ONE_THREAD, **os.environ, "TMPDIR": str(folder)},
            stdout=output,
            stderr=output,
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(END_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()  # the lifeline that breaks then ends its workers
                process.wait()
