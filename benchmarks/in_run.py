"""What a role does per second inside a parallel run, and what the same work does bare, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from remuda.client.client import Client
from remuda.config.schema import ExperimentConfig
from remuda.deploy.launcher import LaunchRequest, WorkerCounts
from remuda.deploy.local import LocalLauncher
from remuda.wire.messages import ExperimentStatus
from remuda.worker.process import ONE_THREAD

START_DEADLINE_S = 60.0
POLL_S = 0.05

Reading = tuple[int, float]
"""A count, and the moment of the monotonic clock at which it was that."""


AtLeast = Callable[[Callable[[], ExperimentStatus], int], Reading]
"""Asks for a run's status until what it counts is at least so much."""


def at_env_step(status: Callable[[], ExperimentStatus], at_least: int) -> Reading:
    """Return `env_step`, once at least so large. Raises TimeoutError."""
    give_up_s = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < give_up_s:
        env_step = status().env_step
        if env_step >= at_least:
            return env_step, time.monotonic()
        time.sleep(POLL_S)
    raise TimeoutError(f"the run did not make {at_least} environment steps within {START_DEADLINE_S:g} s")


def rate_in_run(config: ExperimentConfig, at_least: AtLeast, *, warm_up: int, window_s: float) -> float:
    """Counts/s of a real herd that runs `config`, over `window_s` seconds from `warm_up` on."""
    herd = WorkerCounts(
        collectors=config.collector.count,
        evaluators=config.evaluator.count,
        inference=config.shared_inference.workers,
    )
    with tempfile.TemporaryDirectory() as folder, LocalLauncher(LaunchRequest(Path(folder))) as launcher:
        launcher.start(herd)
        with Client(launcher.connection_file) as client:
            experiment = client.submit(config, run_dir=Path(folder) / "run").experiment
            begin, begin_s = at_least(lambda: client.experiment(experiment), warm_up)
            time.sleep(window_s)
            end, end_s = at_least(lambda: client.experiment(experiment), begin + 1)
            client.stop(experiment, now=True)
            client.shutdown()
    return (end - begin) / (end_s - begin_s)


def bare(module: str, *arguments: str) -> float:
    """Run `python -m module --bare arguments` under the environment that workers get; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, "--bare", *arguments],
        env={**ONE_THREAD, **os.environ},
        stdout=subprocess.PIPE,
        timeout=START_DEADLINE_S,
        check=True,
    )
    return float(json.loads(done.stdout))


@contextmanager
def busy_core() -> Generator[None]:
    """Meanwhile another process keeps a core busy, as the other roles do in a run."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: sum(range(10_000))"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def steady_rate(work: Callable[[int], int], *, warm_up: int, at_a_time: int, window_s: float) -> float:
    """What `work` does per second; it is told how often to do it, and returns how much that came to."""
    work(warm_up)
    done, begin_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - begin_s) < window_s:
        done += work(at_a_time)
    return done / elapsed_s
