"""How much to explore, and how much of the sampling bias to undo, at this point of a run. Imports no torch."""

from __future__ import annotations

import sys

from remuda.config.schema import BufferConfig, DqnConfig, ExperimentConfig, PolicyConfig, StopConfig


def linear(start: float, end: float, *, duration: int, at: int) -> float:
    """Go from `start` at 0 to `end` at `duration` in a straight line and stay there."""
    done = min(max(at / duration, 0.0), 1.0)
    return (1.0 - done) * start + done * end  # exact at both ends, unlike start + done * (end - start)


def exploration(config: ExperimentConfig, *, env_step: int) -> dict[str, float]:
    """What collectors are told about exploring: for DQN, epsilon, the share of random actions; for policies that are
    distributions themselves, nothing. Where nothing is learned it is the least there ever is.

    The schedule counts accepted environment steps, so it goes on where it was after a restart.
    """
    if not isinstance(config.policy, DqnConfig):
        return {}
    at = sys.maxsize if config.learner.inference else env_step
    start, end = config.policy.epsilon_start, config.policy.epsilon_end
    return {"epsilon": linear(start, end, duration=epsilon_decay_env_steps(config.policy, config.stop), at=at)}


def epsilon_decay_env_steps(policy: DqnConfig, stop: StopConfig) -> int:
    """Environment steps until exploration is at its least."""
    if policy.epsilon_decay_env_steps is not None:
        return policy.epsilon_decay_env_steps
    return max(1, min(stop.max_env_steps // DECAY_PARTS, LONGEST_DECAY_ENV_STEPS))


DECAY_PARTS = 5
"""Exploration falls over one of so many parts of a run."""
LONGEST_DECAY_ENV_STEPS = 1_000_000


def least_exploration(policy: PolicyConfig) -> dict[str, float]:
    """What the schedule ends at."""
    return {"epsilon": policy.epsilon_end} if isinstance(policy, DqnConfig) else {}


def importance_beta(buffer: BufferConfig, train_iter: int) -> float:
    """The exponent of the importance weights (Schaul et al. 2016, section 3.4): rises linearly to 1."""
    return linear(buffer.importance_exponent, 1.0, duration=buffer.importance_anneal_iters, at=train_iter)
