"""Pong: environment steps/s of PPO with the usual settings, each of which is learned from four times."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.in_run import Reading, rate_in_run
from remuda.benchmarks.peers import peer
from remuda.config.load import load_config
from remuda.wire.messages import ExperimentStatus

CONFIG = Path(__file__).parent / "configs" / "pong_ppo.yaml"
WINDOW_S = 12.0
WARM_UP_ENV_STEPS = 8 * 1_024
"""Eight iterations: in the first six the learner times precisions."""
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
    return rate_in_run(config, _iteration, warm_up=WARM_UP_ENV_STEPS, window_s=WINDOW_S)


def _iteration(status: Callable[[], ExperimentStatus], at_least: int) -> Reading:
    """`env_step`, being at least so much, and the moment when `train_iter` grows next."""
    give_up_s = time.monotonic() + START_DEADLINE_S
    seen: int | None = None
    while time.monotonic() < give_up_s:
        now = status()
        if now.env_step >= at_least:
            if seen is not None and now.train_iter > seen:
                return now.env_step, time.monotonic()
            seen = now.train_iter
        time.sleep(POLL_S)
    raise TimeoutError(f"the run did not learn from {at_least} environment steps within {START_DEADLINE_S:g} s")


if __name__ == "__main__":
    main(figures)
