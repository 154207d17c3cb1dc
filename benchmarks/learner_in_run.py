"""Learner updates/s inside a parallel run, against the same updates on rows that already lie in memory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Literal

import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.in_run import POLL_S, START_DEADLINE_S, Reading, bare, busy_core, rate_in_run, steady_rate
from remuda.benchmarks.plain_updates import PlainDqn
from remuda.config.schema import ExperimentConfig
from remuda.wire.messages import ExperimentStatus

MODULE = "remuda.benchmarks.learner_in_run"
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
ROWS_IN_MEMORY = 50_000
DRAWN_BATCHES = 512
Whose = Literal["ours", "torch"]


def in_run() -> float:
    """Updates/s of a real herd's learner, as the coordinator counts them."""
    return rate_in_run(CONFIG, _next_news, warm_up=WARM_UP_ITERS, window_s=WINDOW_S)


def _next_news(status: Callable[[], ExperimentStatus], at_least: int) -> Reading:
    """The moment at which `train_iter`, being at least so much, grows next: the count is then exact."""
    give_up_s = time.monotonic() + START_DEADLINE_S
    seen: int | None = None
    while time.monotonic() < give_up_s:
        train_iter = status().train_iter
        if train_iter >= at_least:
            if seen is not None and train_iter > seen:
                return train_iter, time.monotonic()
            seen = train_iter
        time.sleep(0.002 if seen is not None else POLL_S)
    raise TimeoutError(f"the learner did not come beyond update {at_least} within {START_DEADLINE_S:g} s")


def bare_alone() -> float:
    """The same algorithm on rows gathered from memory, the other core idle."""
    return bare(MODULE, "ours")


def bare_beside_a_busy_core() -> float:
    """As above while another process keeps the other core busy, as collectors and coordinator do in a run."""
    with busy_core():
        return bare(MODULE, "ours")


def plain_torch_beside_a_busy_core() -> float:
    """The update as a torch loop without anything of ours makes it, the other core busy too."""
    with busy_core():
        return bare(MODULE, "torch")


def bare_loop(whose: Whose) -> float:
    """Updates/s on uniformly drawn rows of random numbers."""
    from remuda.buffer.ring import ColumnRing
    from remuda.environments.make import make_single
    from remuda.learner.checkpoint import new_algorithm
    from remuda.policy.algorithms.dqn.learning import Dqn
    from remuda.worker.process import bound_threads

    bound_threads()
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

    def updates(count: int) -> int:
        for number in range(count):
            learn({**ring.gather(rows[number % DRAWN_BATCHES]), "weights": weights})
        return count

    return steady_rate(updates, warm_up=1_000, at_a_time=100, window_s=WINDOW_S)


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
