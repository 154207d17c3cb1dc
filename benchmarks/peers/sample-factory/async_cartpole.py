"""Sample Factory: asynchronous PPO on CartPole-v1, environment steps/s from the first update to the end of the run."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time

import gymnasium
import numpy as np
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

ENV = "CartPole-v1"
STOP_VALUE = 475.0
FIXED = """--algo=APPO --experiment=run --use_rnn=False --recurrence=1 --with_vtrace=False --reward_scale=0.1
 --device=cpu --serial_mode=False --async_rl=True --restart_behavior=overwrite --save_every_sec=600
 --experiment_summaries_interval=10 --rollout=32 --learning_rate=0.001 --encoder_mlp_layers 128 128 64"""
"""Its CartPole example's settings, the network that is compared, and a learning rate with which it learns sooner."""


class Watch(AlgoObserver):
    """Notes steps and time after every update, and when the mean return of the last 100 episodes reached the value."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None
        self.last: tuple[float, int] | None = None
        self.solved_s: float | None = None
        self.best = 0.0
        self._started_s = time.monotonic()

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Called in the runner's process after each update."""
        if 0 not in runner.env_steps:
            return
        now_s = time.monotonic()
        self.last = (now_s, runner.env_steps[0])
        self.first = self.first or self.last
        runner.total_train_seconds = now_s - self.first[0]  # which it compares with its limit and never counts itself
        returns = runner.policy_avg_stats.get("reward", [[]])[0]
        if len(returns) >= 100:
            self.best = max(self.best, float(np.mean(returns)))
            if self.solved_s is None and self.best >= STOP_VALUE:
                self.solved_s = now_s - self._started_s


def make_env(
    name: str, cfg: object = None, env_config: object = None, render_mode: str | None = None
) -> gymnasium.Env[np.ndarray, int]:
    """One environment, called in its worker processes."""
    return gymnasium.make(name, render_mode=render_mode)


def main() -> None:
    """Run so many seconds and print one JSON line. The defaults are the fastest of those tried on two cores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs-per-worker", type=int, default=32)
    parser.add_argument("--policy-workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--batched", action="store_true")
    given = parser.parse_args()
    register_env(ENV, make_env)
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        arguments = [
            *FIXED.split(),
            f"--env={ENV}",
            f"--train_dir={folder}",
            f"--train_for_seconds={given.seconds}",
            f"--seed={given.seed}",
            f"--num_workers={given.workers}",
            f"--num_envs_per_worker={given.envs_per_worker}",
            f"--policy_workers_per_policy={given.policy_workers}",
            f"--worker_num_splits={given.splits}",
            f"--batch_size={given.batch_size}",
            f"--batched_sampling={given.batched}",
        ]
        settings, _ = parse_sf_args(argv=arguments)
        _, runner = make_runner(parse_full_cfg(settings, arguments))
        runner.register_observer(watch)
        status = runner.init()
        if status != ExperimentStatus.SUCCESS or runner.run() != ExperimentStatus.SUCCESS:
            sys.exit("the run failed; see above")
    if watch.first is None or watch.last is None or watch.last[0] <= watch.first[0]:
        sys.exit("no update was seen")
    rate = (watch.last[1] - watch.first[1]) / (watch.last[0] - watch.first[0])
    facts = {"value": rate, "env_steps": watch.last[1], "best_return": watch.best, "solved_s": watch.solved_s}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
