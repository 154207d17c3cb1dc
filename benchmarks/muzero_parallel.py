"""What a herd gains for MuZero: environment steps/s with two collectors beside one process, and its learner's pace.

Both modes run the example that is made for speed, for as many steps, without evaluations: as it is, where nearly all
time goes into updates, and with an eighth of the updates, where collecting takes as long as learning. Counts and times
are those of the checkpoints: the first ones are left out, while processes start and the replay fills.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.in_run import bare, busy_core, steady_rate
from remuda.config.load import load_config
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder

MODULE = "remuda.benchmarks.muzero_parallel"
CONFIG = Path(__file__).resolve().parents[1] / "examples" / "cartpole_gumbel_muzero.yaml"
SETTINGS = (
    "collector.count=2",
    "stop.stop_value=null",
    "stop.max_env_steps=8000",
    "evaluator.interval_env_steps=1000000",
    "checkpoint.interval_env_steps=1000",
    "checkpoint.keep=10",
)
FEW_UPDATES = ("buffer.samples_per_insert=4", "stop.max_env_steps=20000", "checkpoint.interval_env_steps=2500")
WARM_UP_CHECKPOINTS = 2
DEADLINE_S = 300.0
WINDOW_S = 6.0
ROWS = 2_000
DRAWN_BATCHES = 64


@dataclass(frozen=True)
class Pace:
    """Of a run, after its beginning."""

    env_steps_per_s: float
    updates_per_s: float


def in_run(command: Literal["train", "launch"], *more: str) -> Pace:
    """Run the command as a user types it, with `more` settings."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [word for setting in (*SETTINGS, *more) for word in ("--set", setting)]
        run = ["--run-dir", f"{folder}/run", *settings]
        done = process.run([sys.executable, "-m", "remuda.cli", command, str(CONFIG), *run], deadline_s=DEADLINE_S)
        if done.status != 0:
            raise RuntimeError(f"remuda {command} ended with status {done.status}: {done.errors[-1_000:]}")
        return pace(RunFolder(Path(folder) / "run"))


def pace(folder: RunFolder) -> Pace:
    """From the checkpoint after the warm-up to the last. Raises ValueError where there are too few."""
    index = CheckpointIndex(folder.ckpt)
    index.load()
    found = sorted(index.records, key=lambda record: record.train_iter)[WARM_UP_CHECKPOINTS:]
    if len(found) < 2:
        raise ValueError(f"{folder.ckpt}: too few checkpoints to say how fast the run was")
    begin, end = found[0], found[-1]
    elapsed_s = end.wall_s - begin.wall_s
    return Pace((end.env_step - begin.env_step) / elapsed_s, (end.train_iter - begin.train_iter) / elapsed_s)


def bare_loop() -> float:
    """Updates/s on rows of random numbers that lie in memory, gathered as the learner gathers them."""
    from remuda.buffer.ring import ColumnRing
    from remuda.config.algorithms.muzero import MuZeroConfig
    from remuda.environments.make import make_single
    from remuda.learner.checkpoint import new_algorithm
    from remuda.worker.process import bound_threads

    bound_threads()
    config = load_config(CONFIG, overrides=SETTINGS).config
    assert isinstance(config.policy, MuZeroConfig)
    env = make_single(config.env, source_dir=None)
    algorithm = new_algorithm(config, env.observation_space, env.action_space)
    rng, k = np.random.default_rng(0), config.policy.unroll_steps
    window = k + config.policy.n_step
    ring = ColumnRing(ROWS)
    columns: dict[str, np.ndarray] = {
        "obs": rng.standard_normal((ROWS, window + 1, 4)).astype(np.float32),
        "action": rng.integers(0, 2, (ROWS, k)),
        "reward": np.ones((ROWS, window), np.float32),
        "search_policy": rng.dirichlet((1.0, 1.0), (ROWS, k + 1)).astype(np.float32),
        "root_value": rng.standard_normal((ROWS, k + 1)).astype(np.float32),
        "steps": np.full(ROWS, window, np.int32),
        "terminated": np.zeros(ROWS, np.bool_),
    }
    ring.write(0, columns)
    rows = rng.integers(0, ROWS, (DRAWN_BATCHES, config.learner.batch_size))
    weights = np.ones(config.learner.batch_size, np.float32)

    def updates(count: int) -> int:
        for number in range(count):
            algorithm.learn({**ring.gather(rows[number % DRAWN_BATCHES]), "weights": weights})
        return count

    return steady_rate(updates, warm_up=20, at_a_time=10, window_s=WINDOW_S)


def bare_beside_a_busy_core() -> float:
    """While another process keeps the other core busy, as collectors and coordinator do in a run."""
    with busy_core():
        return bare(MODULE)


def figures(peers: bool) -> list[Figure]:
    """The references are serial mode, and the limits of this machine."""
    found = compare(
        "muzero_parallel, env steps/s with two collectors",
        unit="env steps/s",
        goal=">= 1",
        ours=lambda: in_run("launch").env_steps_per_s,
        references={"one process": lambda: in_run("train").env_steps_per_s},
    )
    found += compare(
        "muzero_parallel, env steps/s with two collectors, few updates",
        unit="env steps/s",
        goal=">= 1.3",
        ours=lambda: in_run("launch", *FEW_UPDATES).env_steps_per_s,
        references={"one process": lambda: in_run("train", *FEW_UPDATES).env_steps_per_s},
    )
    return found + compare(
        "muzero_parallel, updates/s of the learner",
        unit="updates/s",
        goal=">= 0.9",
        ours=lambda: in_run("launch").updates_per_s,
        references={
            "the same update in a bare loop, other core busy": bare_beside_a_busy_core,
            "the same update in a bare loop, other core idle": functools.partial(bare, MODULE),
        },
    )


if __name__ == "__main__":
    if "--bare" in sys.argv[1:]:
        print(json.dumps(bare_loop()))
    else:
        main(figures)
