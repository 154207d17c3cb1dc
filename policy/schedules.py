"""How much to explore, and how much of the sampling bias to undo, at this point of a run. Imports no torch."""

from __future__ import annotations

import sys

from remuda.config.schema import BufferConfig, DqnConfig, ExperimentConfig, PolicyConfig


def linear(start: float, end: float, *, duration: int, at: int) -> float:
    """Go from `start` at 0 to `end` at `duration` in a straight line and stay there."""
    done = min(max(at / duration, 0.0), 1.0)
    return (1.0 - done) * start + done * end  # exact at both ends, unlike start + done * (end - start)


def exploration(policy: PolicyConfig, *, env_step: int, train_iter: int) -> dict[str, float]:
    """What collectors are told about exploring: for DQN, epsilon, the share of random actions; for policies that are
    distributions themselves, nothing.

    A schedule counts accepted environment steps or gradient updates, whichever its config field names, so it goes on
    where it was after a restart.
    """
    del train_iter  # DQN's only schedule counts environment steps
    if not isinstance(policy, DqnConfig):
        return {}
    decay = policy.epsilon_decay_env_steps
    return {"epsilon": linear(policy.epsilon_start, policy.epsilon_end, duration=decay, at=env_step)}


def exploration_of(config: ExperimentConfig, *, env_step: int, train_iter: int) -> dict[str, float]:
    """`exploration` of a run; where nothing is learned it is what schedules end at."""
    if config.learner.inference:
        env_step = train_iter = sys.maxsize
    return exploration(config.policy, env_step=env_step, train_iter=train_iter)


def importance_beta(buffer: BufferConfig, train_iter: int) -> float:
    """The exponent of the importance weights (Schaul et al. 2016, section 3.4): rises linearly to 1."""
    return linear(buffer.importance_exponent, 1.0, duration=buffer.importance_anneal_iters, at=train_iter)
