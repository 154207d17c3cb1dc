"""Values that change during a run. Imports no torch."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import ActionValueConfig
from remuda.config.learning import BufferConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Schedule
from remuda.config.workers import StopConfig

DECAY_PARTS = 5
"""Exploration falls over this fraction of a run (1 / n)."""
LONGEST_DECAY_ENV_STEPS = 1_000_000


def linear(start: float, end: float, *, duration: int, at: int) -> float:
    """Interpolate linearly from `start` at 0 to `end` at `duration`, constant afterwards."""
    done = min(max(at / duration, 0.0), 1.0)
    return (1.0 - done) * start + done * end  # exact at both ends, unlike start + done * (end - start)


def importance_beta(buffer: BufferConfig, train_iter: int) -> float:
    """The exponent of the importance weights (Schaul et al. 2016, section 3.4): rises linearly to 1."""
    return linear(buffer.importance_exponent, 1.0, duration=buffer.importance_anneal_iters, at=train_iter)


def epsilon_schedule(config: ExperimentConfig, settings: ActionValueConfig) -> Schedule:
    """Share of random actions: decreases linearly with the environment steps. With `learner.inference` it has the last
    value from the start."""
    if config.learner.inference:
        return ((0, settings.epsilon_end),)
    return ((0, settings.epsilon_start), (_decay_env_steps(settings, config.stop), settings.epsilon_end))


def _decay_env_steps(settings: ActionValueConfig, stop: StopConfig) -> int:
    if settings.epsilon_decay_env_steps is not None:
        return settings.epsilon_decay_env_steps
    return max(1, min(stop.max_env_steps // DECAY_PARTS, LONGEST_DECAY_ENV_STEPS))
