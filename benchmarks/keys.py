"""What keys cost: the same coordinator, clients and runs with and without them.

Without them: `open_lines`, which only benchmarks have.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from remuda.benchmarks.announcements import announced
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.open_lines import open_lines
from remuda.benchmarks.stand_ins import DEADLINE_S, coordinator, python
from remuda.client.client import Client
from remuda.config.load import load_config
from remuda.wire.messages import OVER

ROUND_TRIPS = 5_000
WARM_UP = 500
CONFIG = Path(__file__).parent / "configs" / "async_throughput.yaml"
RUN_ENV_STEPS = 400_000
RUN_DEADLINE_S = 300.0
POLL_S = 0.2


def figures(peers: bool) -> list[Figure]:
    """Round trips of a client, announcements of chunks to a busy coordinator, and a whole run. Runs differ by more than
    keys cost, so there are more of them."""
    if peers:
        return []
    found: list[Figure] = []
    for name, unit, goal, measure, n in (
        ("keys_round_trips", "round trips/s", ">= 0.9", round_trips, 3),
        ("keys_announcements", "acknowledged/s", ">= 0.9", announced, 3),
        ("keys_run", "env steps/s", ">= 0.95", run_steps, 7),
    ):
        without = functools.partial(measure, keys=False)
        found += compare(name, unit=unit, goal=goal, ours=measure, references={"without keys": without}, n=n)
    return found


def round_trips(*, keys: bool = True) -> float:
    """Requests for the status/s of one client, one after the other, to a coordinator that has nothing else to do."""
    with served(keys=keys) as file, Client(file) as client:
        for _ in range(WARM_UP):
            client.status()
        begin_s = time.perf_counter()
        for _ in range(ROUND_TRIPS):
            client.status()
        return ROUND_TRIPS / (time.perf_counter() - begin_s)


def run_steps(*, keys: bool = True) -> float:
    """Environment steps/s of an asynchronous run of two collectors, an evaluator and a learner on CartPole-v1."""
    config = load_config(
        CONFIG, overrides=[f"stop.max_env_steps={RUN_ENV_STEPS}", "stop.stop_value=null", "evaluator.episodes=0"]
    ).config
    with served(keys=keys) as file, _workers(file, keys=keys), Client(file) as client:
        client.submit(config, run_dir=file.parent / "run")
        end_s = time.monotonic() + RUN_DEADLINE_S
        while (status := client.experiment(config.name)).state not in OVER:
            if time.monotonic() > end_s:
                raise TimeoutError(f"the run is at {status.env_step} environment steps after {RUN_DEADLINE_S:g} s")
            time.sleep(POLL_S)
        if status.state != "finished":
            raise RuntimeError(f"the run {status.state}: {status.reason}")
        return status.env_step / status.wall_s


@contextmanager
def served(*, keys: bool) -> Generator[Path]:
    """A coordinator in a folder of its own; yields its connection file. This process speaks to it in the same way."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not keys:
            stack.enter_context(open_lines())
        yield stack.enter_context(coordinator(folder, keys=keys))


@contextmanager
def _workers(file: Path, *, keys: bool) -> Generator[None]:
    counts = ("--collectors", "2", "--learners", "1")
    with (file.parent / "workers.log").open("wb") as output:
        command = python("remuda.deploy.nanny", "--connection-file", str(file), *counts, keys=keys)
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


if __name__ == "__main__":
    main(figures)
