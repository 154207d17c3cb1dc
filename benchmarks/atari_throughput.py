"""Pong: environment steps/s of a run that learns, against what inference, and then updates, leave of the emulator."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from remuda.benchmarks.figure import Figure, Measure, compare, main
from remuda.client.client import Client
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.deploy.launcher import LaunchRequest, WorkerCounts
from remuda.deploy.local import LocalLauncher
from remuda.policy.base import Algorithm
from remuda.policy.row_plan import row_plan
from remuda.worker.process import ONE_THREAD

CONFIGS = Path(__file__).parent / "configs"
CORES = os.cpu_count() or 1
GAMES_ALONE = 32
"""Of the emulator without a policy: enough to keep all its threads busy."""
WINDOW_S = 4.0
RUN_WINDOW_S = 12.0
WARM_UP_ENV_STEPS = 4_000
START_DEADLINE_S = 120.0
POLL_S = 0.005


def figures(peers: bool) -> Iterator[Figure]:
    """The limits are this machine's. IMPALA learns from a step once, DQN as it is usual eight times."""
    for name in ("impala", "dqn"):
        config = CONFIGS / f"pong_{name}.yaml"
        references: dict[str, Measure] = {
            "emulator less inference": functools.partial(limit, config, updates=False),
            "emulator less inference and updates": functools.partial(limit, config, updates=True),
        }
        ours = functools.partial(in_run, config)
        yield from compare(
            f"atari_throughput_{name}", unit="env steps/s", goal=">= 0.7", ours=ours, references=references
        )


def limit(path: Path, *, updates: bool) -> float:
    """Env steps/s of all cores that emulate, answer observations and, with `updates`, learn, and do nothing else.

    A step costs the sum of the three in seconds of one core; stderr tells them.
    """
    costs = {"emulator": CORES / _alone("emulator", path, threads=CORES), "inference": _alone("inference", path)}
    if updates:
        costs["updates"] = _alone("updates", path)
    shown = ", ".join(f"{what} {seconds * 1e3:.3f} ms" for what, seconds in costs.items())
    print(f"{path.stem}: a step costs of one core: {shown}", file=sys.stderr)
    return CORES / sum(costs.values())


def in_run(path: Path) -> float:
    """Env steps/s of a real herd while it learns, as the coordinator counts them."""
    config = load_config(path).config
    herd = WorkerCounts(collectors=config.collector.count, evaluators=config.evaluator.count)
    with tempfile.TemporaryDirectory() as folder, LocalLauncher(LaunchRequest(Path(folder))) as launcher:
        launcher.start(herd)
        with Client(launcher.connection_file) as client:
            experiment = client.submit(config, run_dir=Path(folder) / "run").experiment
            begin, updates, begin_s = _next_news(client, experiment, WARM_UP_ENV_STEPS)
            time.sleep(RUN_WINDOW_S)
            end, updates_then, end_s = _next_news(client, experiment, begin + 1)
            client.stop(experiment, now=True)
            client.shutdown()
    elapsed_s = end_s - begin_s
    print(f"{path.stem}: {(updates_then - updates) / elapsed_s:.1f} updates/s in the run", file=sys.stderr)
    return (end - begin) / elapsed_s if updates_then > updates else 0.0


def _next_news(client: Client, experiment: str, at_least: int) -> tuple[int, int, float]:
    """`env_step`, `train_iter` and the moment when the first, being so much, grows next, and the second counts too."""
    give_up_s = time.monotonic() + START_DEADLINE_S
    seen: int | None = None
    while time.monotonic() < give_up_s:
        status = client.experiment(experiment)
        if status.env_step >= at_least and status.train_iter > 0:
            if seen is not None and status.env_step > seen:
                return status.env_step, status.train_iter, time.monotonic()
            seen = status.env_step
        time.sleep(POLL_S)
    raise TimeoutError(f"the run did not come beyond step {at_least} within {START_DEADLINE_S:g} s")


def _alone(what: str, path: Path, *, threads: int = 1) -> float:
    """Measure in a process of its own, under the environment that the workers get."""
    module = __spec__.name if __spec__ else "remuda.benchmarks.atari_throughput"
    done = subprocess.run(
        [sys.executable, "-m", module, "--alone", what, str(path), str(threads)],
        env={**ONE_THREAD, **os.environ},
        stdout=subprocess.PIPE,
        timeout=START_DEADLINE_S,
        check=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def emulator(config: ExperimentConfig, threads: int) -> float:
    """Env steps/s with random actions and nobody looking."""
    from remuda.environments.copies import make_copies
    from remuda.environments.lanes import AGENT

    env = config.env.model_copy(update={"kwargs": {**config.env.kwargs, "num_threads": threads}})
    copies = make_copies(env, {"": (AGENT,)}, num_envs=GAMES_ALONE, source_dir=None)
    copies.reset(list(range(GAMES_ALONE)))
    rng = np.random.default_rng(0)
    return GAMES_ALONE / _seconds(lambda: copies.step([rng.integers(0, 6, GAMES_ALONE)]))


def inference(config: ExperimentConfig, threads: int) -> float:
    """Seconds per env step of the policy's answers to one collector's observations."""
    from remuda.policy.algorithms import make_policy

    algorithm = _algorithm(config)
    policy = make_policy(config, algorithm.observation, algorithm.action, chosen=lambda choice: None)
    policy.load_state(algorithm.published_state())
    rng, exploration = np.random.default_rng(0), {"epsilon": 0.05}
    seen = rng.integers(0, 256, (config.env.num_envs, *algorithm.observation.shape), dtype=np.uint8)
    return _seconds(lambda: policy.act_recording(seen, exploration, rng)) / config.env.num_envs


def updates(config: ExperimentConfig, threads: int) -> float:
    """Seconds of updates per env step, on rows that lie in memory."""
    algorithm, rng = _algorithm(config), np.random.default_rng(0)
    plan = row_plan(config)
    rows, shape = plan.rows_per_update, algorithm.observation.shape

    def frames(*leading: int) -> np.ndarray:
        return rng.integers(0, 256, (*leading, *shape), dtype=np.uint8)

    if isinstance(config.policy, DqnConfig):
        batch = {
            "obs": frames(rows),
            "next_obs": frames(rows),
            "action": rng.integers(0, 6, rows),
            "reward": np.ones(rows, np.float32),
            "discount": np.full(rows, 0.97, np.float32),
            "weights": np.ones(rows, np.float32),
        }
        env_steps = rows / (config.buffer.samples_per_insert or 1.0)
    else:
        slots = (rows, plan.slots_per_row)
        batch = {
            "obs": frames(rows, plan.slots_per_row + 1),
            "action": rng.integers(0, 6, slots),
            "reward": np.ones(slots, np.float32),
            "terminated": np.zeros(slots, np.bool_),
            "done": np.zeros(slots, np.bool_),
            "valid": np.ones(slots, np.bool_),
            "log_prob": np.full(slots, -1.8, np.float32),
            "version": np.zeros(rows, np.int64),
            "return_so_far": np.zeros(rows, np.float32),
        }
        env_steps = float(rows * plan.slots_per_row)
    return _seconds(lambda: algorithm.learn(batch)) / env_steps


def _algorithm(config: ExperimentConfig) -> Algorithm:
    from remuda.environments.make import make_single
    from remuda.learner.checkpoint import new_algorithm
    from remuda.learner.precision import choose_precision
    from remuda.worker.process import bound_threads

    bound_threads()
    env = make_single(config.env, source_dir=None)
    algorithm = new_algorithm(config, env.observation_space, env.action_space)
    choose_precision(config, algorithm, timed=False, say=lambda line: print(line, file=sys.stderr))
    return algorithm


def _seconds(call: Callable[[], object]) -> float:
    """Per call, over WINDOW_S."""
    for _ in range(3):
        call()
    calls, begin_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - begin_s) < WINDOW_S:
        call()
        calls += 1
    return elapsed_s / calls


_PARTS = {part.__name__: part for part in (emulator, inference, updates)}


if __name__ == "__main__":
    if "--alone" in sys.argv[1:]:
        what, path, threads = sys.argv[-3:]
        print(json.dumps(_PARTS[what](load_config(Path(path)).config, int(threads))))
    else:
        main(figures)
