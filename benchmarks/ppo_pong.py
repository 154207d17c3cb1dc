"""Pong: environment steps/s of PPO with the usual settings, each of which is learned from four times."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer
from remuda.client.client import Client
from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.deploy.launcher import LaunchRequest, WorkerCounts
from remuda.deploy.local import LocalLauncher

CONFIG = Path(__file__).parent / "configs" / "pong_ppo.yaml"
WINDOW_S = 12.0
WARM_UP_ITERATIONS = 8
"""In the first six the learner times precisions."""
START_DEADLINE_S = 120.0
PEER_DEADLINE_S = 240.0
POLL_S = 0.005


def figures(peers: bool) -> Iterator[Figure]:
    """Both sides play eight games and have the settings of stable-baselines3's zoo."""
    if not peers:
        return
    one, several = (
        peer("stable-baselines3", "pong_ppo", *more, deadline_s=PEER_DEADLINE_S)
        for more in ((), ("--vector", "subproc"))
    )
    yield from compare(
        "ppo_pong",
        unit="env steps/s",
        goal=">= 3",
        ours=functools.partial(in_run, CONFIG),
        references={"stable-baselines3": one, "stable-baselines3 with games in processes": several},
    )


def in_run(path: Path) -> float:
    """Env steps/s of a real herd over whole iterations, each of which begins when the one before is learned from."""
    config = load_config(path).config
    with tempfile.TemporaryDirectory() as folder, LocalLauncher(LaunchRequest(Path(folder))) as launcher:
        launcher.start(WorkerCounts(collectors=config.collector.count, evaluators=config.evaluator.count))
        with Client(launcher.connection_file) as client:
            experiment = client.submit(config, run_dir=Path(folder) / "run").experiment
            begin, begin_s = _next_iteration(client, experiment, WARM_UP_ITERATIONS * _updates(config))
            end, end_s = begin, begin_s
            while end_s - begin_s < WINDOW_S:
                end, end_s = _next_iteration(client, experiment, 0)
            client.stop(experiment, now=True)
            client.shutdown()
    return (end - begin) / (end_s - begin_s)


def _updates(config: ExperimentConfig) -> int:
    """Gradient updates of an iteration."""
    assert isinstance(config.policy, PpoConfig), config.policy.type
    return config.policy.epochs * config.policy.minibatches


def _next_iteration(client: Client, experiment: str, at_least: int) -> tuple[int, float]:
    """`env_step` and the moment when `train_iter`, being so much, grows next."""
    give_up_s = time.monotonic() + START_DEADLINE_S
    seen: int | None = None
    while time.monotonic() < give_up_s:
        status = client.experiment(experiment)
        if status.train_iter >= at_least:
            if seen is not None and status.train_iter > seen:
                return status.env_step, time.monotonic()
            seen = status.train_iter
        time.sleep(POLL_S)
    raise TimeoutError(f"the run made no iteration beyond update {at_least} within {START_DEADLINE_S:g} s")


if __name__ == "__main__":
    main(figures)
