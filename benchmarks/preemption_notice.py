"""How long after a job's notice (SIGUSR1) what its collector has is handed in, beside the 2 s that are the goal.

Coordinator, learner and collector run as the jobs that an engine starts, on this machine and without the engine.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from remuda.benchmarks.figure import Figure, compare, main
from remuda.client.client import Client
from remuda.config.load import load_config
from remuda.wire.connection_file import wait_for

GOAL_S = 2.0
WARM_ENV_STEPS = 5_000
DEADLINE_S = 120.0
LOOK_S = 0.005
CONFIG = Path(__file__).resolve().parents[1] / "examples" / "cartpole_dqn.yaml"
SETTINGS = ("collector.count=1", "evaluator.episodes=0", "stop.stop_value=null", "stop.max_env_steps=1000000000")


@contextlib.contextmanager
def job(folder: Path, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """A job of an engine; it is ended with the block."""
    places = ["--own-dir", str(folder / "own"), "--runs-dir", str(folder / "runs")]
    command = [sys.executable, "-P", "-m", "remuda.deploy.job", *arguments, *places]
    with (folder / f"{arguments[0]}.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def collectors(client: Client) -> int:
    """How many are in the herd. One leaves it once everything that it has said is acknowledged and counted."""
    return sum(worker.role == "collector" for worker in client.status().workers)


def handed_in_s() -> float:
    """From the signal until the collector has handed in and left."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        (folder / "runs").mkdir()
        stack.enter_context(job(folder, "head", "--bind", "tcp://127.0.0.1:0"))
        collector = stack.enter_context(job(folder, "collector"))
        wait_for(folder / "own" / "connection.json", deadline_s=DEADLINE_S)
        client = stack.enter_context(Client(folder / "own" / "connection.json"))
        run = client.submit(load_config(CONFIG, overrides=SETTINGS).config, run_dir="run").experiment
        end_s = time.monotonic() + DEADLINE_S
        while client.experiment(run).env_step < WARM_ENV_STEPS:
            assert time.monotonic() < end_s, "it does not collect"
            time.sleep(0.1)
        begun_s = time.monotonic()
        collector.send_signal(signal.SIGUSR1)
        while collectors(client):
            assert time.monotonic() < begun_s + DEADLINE_S, "it does not leave"
            time.sleep(LOOK_S)
        took_s = time.monotonic() - begun_s
        client.stop(run, now=True)
        client.shutdown()
        return took_s


def figures(peers: bool) -> list[Figure]:
    """Seconds from a preemption notice until everything is handed in."""
    return compare(
        "preemption_notice",
        unit="s",
        goal="<= 1",
        ours=handed_in_s,
        references={"the 2 s that are the goal": lambda: GOAL_S},
        n=5,
    )


if __name__ == "__main__":
    main(figures)
