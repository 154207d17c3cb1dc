"""One collector's steps/s inside a parallel run, against the bare loop of the same vector environment and network."""

from __future__ import annotations

import json
import sys

import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.in_run import at_env_step, bare, busy_core, rate_in_run, steady_rate
from remuda.config.schema import ExperimentConfig

MODULE = "remuda.benchmarks.collector_in_run"
CONFIG = ExperimentConfig.model_validate(
    {
        "name": "collector-in-run",
        "env": {"id": "CartPole-v1"},
        "collector": {"count": 1},
        "buffer": {"samples_per_insert": None},
        "evaluator": {"interval_env_steps": 1_000_000_000},
        "checkpoint": {"interval_env_steps": 1_000_000_000},
        "stop": {"max_env_steps": 1_000_000_000},
    }
)
"""The defaults (8 environments, gymnasium's own vector, layers of 128, 128 and 64 units, n-step 3), but nothing holds
collector and learner back from each other, so that each takes a core. No evaluation and no checkpoint."""
EXPLORATION = {"epsilon": 0.05}
WARM_UP_ENV_STEPS = 200_000
WINDOW_S = 5.0


def in_run() -> float:
    """Steps/s of a real herd's only collector, by what the coordinator has accepted."""
    return rate_in_run(CONFIG, at_env_step, warm_up=WARM_UP_ENV_STEPS, window_s=WINDOW_S)


def bare_alone() -> float:
    """The same environments and network and nothing else, the other core idle."""
    return bare(MODULE)


def bare_beside_a_busy_core() -> float:
    """As above while another process keeps the other core busy, as the learner does in a run."""
    with busy_core():
        return bare(MODULE)


def bare_loop() -> float:
    """Steps/s of acting and stepping; a reset of an environment is no step."""
    from remuda.environments.copies import make_copies
    from remuda.environments.lanes import AGENT
    from remuda.learner.checkpoint import new_algorithm
    from remuda.policy.algorithms import make_policy
    from remuda.worker.process import bound_threads

    bound_threads()
    num_envs = CONFIG.env.num_envs
    copies = make_copies(CONFIG.env, {"": (AGENT,)}, num_envs=num_envs, source_dir=None)
    (lanes,) = copies.lanes
    algorithm = new_algorithm(CONFIG, lanes.group.observation, lanes.group.action)
    policy = make_policy(CONFIG, algorithm.observation, algorithm.action)
    policy.load_state(algorithm.published_state())
    rng = np.random.default_rng(0)
    copies.reset(list(range(num_envs)))

    def steps(count: int) -> int:
        taken = 0
        for _ in range(count):
            taken += copies.step([policy.act(lanes.observations, EXPLORATION, rng, deterministic=False)])
        return taken

    return steady_rate(steps, warm_up=2_000, at_a_time=100, window_s=WINDOW_S)


def figures(peers: bool) -> list[Figure]:
    """No peer's collector is measured alone; both references are the limit of this machine."""
    return compare(
        "collector_in_run",
        unit="steps/s",
        goal=">= 0.85",
        ours=in_run,
        references={"bare loop, other core idle": bare_alone, "bare loop, other core busy": bare_beside_a_busy_core},
    )


if __name__ == "__main__":
    if "--bare" in sys.argv[1:]:
        print(json.dumps(bare_loop()))
    else:
        main(figures)
