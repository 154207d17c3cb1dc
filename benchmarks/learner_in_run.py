"""Learner updates/s inside a parallel run, against the same updates on rows that already lie in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.plain_dqn import PlainDqn
from remuda.client.client import Client
from remuda.config.schema import ExperimentConfig
from remuda.deploy.launcher import Herd
from remuda.deploy.local import ONE_THREAD, LocalLauncher

CONFIG = ExperimentConfig.model_validate(
    {
        "name": "learner-in-run",
        "env": {"id": "CartPole-v1"},
        "collector": {"count": 1},
        "evaluator": {"interval_env_steps": 1_000_000_000},
        "checkpoint": {"interval_env_steps": 1_000_000_000},
        "stop": {"max_env_steps": 1_000_000_000},
    }
)
"""The defaults (batches of 64, prioritized, a row used 8 times, a policy every 10 updates): the learner is what limits
such a run, the collector waits for credit. No evaluation and no checkpoint, whose cost is not the data path's."""
WARM_UP_ITERS = 4_000
"""The first policies of a run are published as they come, more often than later; see learner/publisher.py."""
WINDOW_S = 6.0
START_DEADLINE_S = 60.0
POLL_S = 0.05
ROWS_IN_MEMORY = 50_000
DRAWN_BATCHES = 512
Whose = Literal["ours", "torch"]


def in_run() -> float:
    """Updates/s of a real herd's learner, by what the coordinator hears of it."""
    herd = Herd(collectors=CONFIG.collector.count, evaluators=CONFIG.evaluator.count)
    with tempfile.TemporaryDirectory() as folder, LocalLauncher(Path(folder)) as launcher:
        launcher.start(herd)
        with Client(launcher.connection_file) as client:
            experiment = client.submit(CONFIG, run_dir=Path(folder) / "run").experiment
            begin_iter, begin_s = _next_news(client, experiment, WARM_UP_ITERS)
            time.sleep(WINDOW_S)
            end_iter, end_s = _next_news(client, experiment, begin_iter + 1)
            client.stop(experiment, now=True)
            client.shutdown()
    return (end_iter - begin_iter) / (end_s - begin_s)


def _next_news(client: Client, experiment: str, at_least: int) -> tuple[int, float]:
    """The moment at which `train_iter`, being at least so much, grows next: the count is then exact."""
    give_up_s = time.monotonic() + START_DEADLINE_S
    seen: int | None = None
    while time.monotonic() < give_up_s:
        train_iter = client.experiment(experiment).train_iter
        if train_iter >= at_least:
            if seen is not None and train_iter > seen:
                return train_iter, time.monotonic()
            seen = train_iter
        time.sleep(0.002 if seen is not None else POLL_S)
    raise TimeoutError(f"the learner did not come beyond update {at_least} within {START_DEADLINE_S:g} s")


def bare_alone() -> float:
    """The same algorithm on rows gathered from memory, the other core idle."""
    return _bare("ours")


def bare_beside_a_busy_core() -> float:
    """As above while another process keeps the other core busy, as collectors and coordinator do in a run."""
    return _beside_a_busy_core("ours")


def plain_torch_beside_a_busy_core() -> float:
    """The update as a torch loop without anything of ours makes it, the other core busy too."""
    return _beside_a_busy_core("torch")


def _beside_a_busy_core(whose: Whose) -> float:
    busy = subprocess.Popen([sys.executable, "-c", "while True: sum(range(10_000))"])
    try:
        return _bare(whose)
    finally:
        busy.kill()
        busy.wait()


def _bare(whose: Whose) -> float:
    """In a process of its own, under the environment that the workers get."""
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name if __spec__ else "remuda.benchmarks.learner_in_run", "--bare", whose],
        env={**ONE_THREAD, **os.environ},
        stdout=subprocess.PIPE,
        timeout=START_DEADLINE_S,
        check=True,
    )
    return float(json.loads(done.stdout))


def bare_loop(whose: Whose) -> float:
    """Updates/s on uniformly drawn rows of random numbers."""
    from remuda.buffer.ring import ColumnRing
    from remuda.environments.make import make_single
    from remuda.learner.start import new_algorithm
    from remuda.policy.algorithms.dqn import Dqn
    from remuda.worker.life import bound_threads

    bound_threads(1)
    rng = np.random.default_rng(0)
    env = make_single(CONFIG.env, source_dir=None)
    algorithm = new_algorithm(CONFIG, env.observation_space, env.action_space)
    assert isinstance(algorithm, Dqn)
    learn = algorithm.learn if whose == "ours" else PlainDqn(CONFIG, algorithm.network).learn
    size = CONFIG.learner.batch_size
    ring = ColumnRing(CONFIG.buffer.capacity)
    ring.write(
        0,
        {
            "obs": rng.standard_normal((ROWS_IN_MEMORY, 4)).astype(np.float32),
            "next_obs": rng.standard_normal((ROWS_IN_MEMORY, 4)).astype(np.float32),
            "action": rng.integers(0, 2, ROWS_IN_MEMORY),
            "reward": np.ones(ROWS_IN_MEMORY, np.float32),
            "discount": np.full(ROWS_IN_MEMORY, 0.97, np.float32),
        },
    )
    rows = rng.integers(0, ROWS_IN_MEMORY, (DRAWN_BATCHES, size))
    weights = np.ones(size, np.float32)

    def updates(count: int) -> None:
        for number in range(count):
            learn({**ring.gather(rows[number % DRAWN_BATCHES]), "weights": weights})

    updates(1_000)
    done, begin_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - begin_s) < WINDOW_S:
        updates(100)
        done += 100
    return done / elapsed_s


def figures(peers: bool) -> list[Figure]:
    """No peer has such a learner; the references are the limits of this machine."""
    return compare(
        "learner_in_run",
        unit="updates/s",
        goal=">= 0.9",
        ours=in_run,
        references={
            "bare torch loop, other core busy": plain_torch_beside_a_busy_core,
            "our update in a bare loop, other core busy": bare_beside_a_busy_core,
            "our update in a bare loop, other core idle": bare_alone,
        },
    )


if __name__ == "__main__":
    if "--bare" in sys.argv[1:]:
        print(json.dumps(bare_loop("torch" if "torch" in sys.argv else "ours")))
    else:
        main(figures)
