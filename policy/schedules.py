"""How much to explore, and how much of the sampling bias to undo, at this point of a run. Imports no torch."""

from __future__ import annotations

import sys

from remuda.config.schema import BufferConfig, DqnConfig, ExperimentConfig, PolicyConfig


def linear(start: float, end: float, *, duration: int, at: int) -> float:
    """Go from `start` at 0 to `end` at `duration` in a straight line and stay there."""
    done = min(max(at / duration, 0.0), 1.0)
    return (1.0 - done) * start + done * end  # exact at both ends, unlike start + done * (end - start)


def exploration(config: ExperimentConfig, *, env_step: int) -> dict[str, float]:
    """What collectors are told about exploring: for DQN, epsilon, the share of random actions; for policies that are
    distributions themselves, nothing. Where nothing is learned it is the least there ever is.

    The schedule counts accepted environment steps, so it goes on where it was after a restart.
    """
    return _at(config.policy, sys.maxsize if config.learner.inference else env_step)


def least_exploration(policy: PolicyConfig) -> dict[str, float]:
    """What the schedule ends at."""
    return _at(policy, sys.maxsize)


def _at(policy: PolicyConfig, env_step: int) -> dict[str, float]:
    if not isinstance(policy, DqnConfig):
        return {}
    decay = policy.epsilon_decay_env_steps
    return {"epsilon": linear(policy.epsilon_start, policy.epsilon_end, duration=decay, at=env_step)}


def importance_beta(buffer: BufferConfig, train_iter: int) -> float:
    """The exponent of the importance weights (Schaul et al. 2016, section 3.4): rises linearly to 1."""
    return linear(buffer.importance_exponent, 1.0, duration=buffer.importance_anneal_iters, at=train_iter)
