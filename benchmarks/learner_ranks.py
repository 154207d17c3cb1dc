"""Two learner ranks against one: milliseconds per update, and the same curve.

DQN's update on batches in memory, without a coordinator: a network of 10^6 parameters with 1024 rows, for which ranks
are meant, and the small network of CartPole with 64 rows, where an update takes less time than the messages. On a
machine whose two cores share caches, or serve others meanwhile, two ranks gain less than the goal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.config.schema import ExperimentConfig
from remuda.environments.make import check_environment
from remuda.learner.checkpoint import new_algorithm
from remuda.learner.loop import on_host
from remuda.learner.ranks.leading import LearnerRanks
from remuda.learner.ranks.processes import RankProcesses
from remuda.policy.base import Arrays, LearnResult
from remuda.worker.process import bound_threads

WARM_UP = 5
BATCHES = 16
"""Different batches, over and over."""
SIZES = {
    "large": ([1000, 995], 1024, 60),
    "small": ([128, 128, 64], 64, 500),
}
"""Hidden layers, rows of a batch, updates."""
CURVE_UPDATES = 200
Learns = Callable[[Arrays], LearnResult]


def figures(peers: bool) -> list[Figure]:
    """Compare two ranks with one."""
    bound_threads()
    found: list[Figure] = []
    for size, goal in (("large", "<= 0.7"), ("small", "<= 4")):
        found += compare(
            f"learner_ranks, {size} network",
            unit="ms/update",
            goal=goal,
            ours=partial(update_ms, size, ranks=2),
            references={"one rank": partial(update_ms, size, ranks=1)},
        )
    return found + compare(
        "learner_ranks, curve",
        unit="mean loss of the last quarter of 200 updates",
        goal="<= 1.001",
        ours=partial(last_losses, ranks=2),
        references={"one rank": partial(last_losses, ranks=1)},
        n=1,
    )


def update_ms(size: str, *, ranks: int) -> float:
    """The mean time of an update, in milliseconds."""
    _, _, updates = SIZES[size]

    def measure(learn: Learns, batches: list[Arrays]) -> float:
        for batch in batches[:WARM_UP]:
            learn(batch)
        started_s = time.perf_counter()
        for update in range(updates):
            learn(batches[update % BATCHES])
        return 1e3 * (time.perf_counter() - started_s) / updates

    return with_ranks(size, ranks, measure)


def last_losses(*, ranks: int) -> float:
    """The mean loss over the last updates of a short training."""

    def measure(learn: Learns, batches: list[Arrays]) -> float:
        losses = [learn(batches[update % BATCHES]).metrics["total_loss"] for update in range(CURVE_UPDATES)]
        return float(on_host(losses)[-CURVE_UPDATES // 4 :].mean())

    return with_ranks("small", ranks, measure)


def with_ranks(size: str, ranks: int, measure: Callable[[Learns, list[Arrays]], float]) -> float:
    """Measure learning with so many ranks, from the same weights and batches each time."""
    config = config_of(size, ranks)
    algorithm = new_algorithm(config, *check_environment(config))
    rng = np.random.default_rng(0)
    batches = [random_batch(rng, config.learner.batch_size) for _ in range(BATCHES)]
    if ranks == 1:
        return measure(algorithm.learn, batches)
    with closing(LearnerRanks(config, algorithm, RankProcesses)) as together:
        return measure(together.learn, batches)


def config_of(size: str, ranks: int) -> ExperimentConfig:
    """DQN on CartPole's observations."""
    hidden, rows, _ = SIZES[size]
    return ExperimentConfig.model_validate(
        {
            "name": "ranks",
            "env": {"id": "CartPole-v1"},
            "policy": {"hidden": hidden, "dueling": False},
            "learner": {"batch_size": rows, "ranks": ranks},
        }
    )


def random_batch(rng: np.random.Generator, rows: int) -> Arrays:
    """Transitions that teach nothing much, in the columns of DQN."""
    return {
        "obs": rng.standard_normal((rows, 4)).astype(np.float32),
        "next_obs": rng.standard_normal((rows, 4)).astype(np.float32),
        "action": rng.integers(0, 2, rows),
        "reward": rng.standard_normal(rows).astype(np.float32),
        "discount": np.full(rows, 0.97, np.float32),
        "weights": np.ones(rows, np.float32),
    }


if __name__ == "__main__":
    main(figures)
