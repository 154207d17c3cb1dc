"""A custom training loop in a run folder of Remuda's: the cross-entropy method on CartPole; docs/custom-loops.md."""

import gymnasium
import numpy as np
import torch

from remuda import run_context

CONFIG = {"name": "cartpole_cem", "population": 16, "elite": 4, "budget_env_steps": 15_000, "seed": 0}


def play(env, weights, seed):
    """Return reward sum and length of one episode of a linear policy."""
    observation, _ = env.reset(seed=seed)
    for steps in range(1, 1_000):
        observation, _, terminated, truncated, _ = env.step(int(weights @ observation > 0))
        if terminated or truncated:
            return float(steps), steps


env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(CONFIG["seed"])
mean, spread, env_step, train_iter = np.zeros(4), np.ones(4), 0, 0

with run_context("runs/cartpole_cem", CONFIG, sinks=["csv"]) as run:
    while env_step < CONFIG["budget_env_steps"]:
        candidates = rng.normal(mean, spread, (CONFIG["population"], 4))
        returns, lengths = zip(*(play(env, weights, seed=train_iter) for weights in candidates))
        elite = candidates[np.argsort(returns)[-CONFIG["elite"] :]]
        mean, spread = elite.mean(0), elite.std(0) + 0.05
        env_step, train_iter = env_step + sum(lengths), train_iter + 1
        run.log(
            env_step=env_step,
            train_iter=train_iter,
            returns=returns,
            lengths=lengths,
            metrics={"spread": float(spread.mean())},
        )
        if train_iter % 2 == 0:
            state = {"mean": torch.tensor(mean), "spread": torch.tensor(spread)}
            checkpoint = run.save(state, env_step=env_step, train_iter=train_iter)
            run.log_evaluation(checkpoint, *zip(*(play(env, mean, seed=10_000 + n) for n in range(5))))
