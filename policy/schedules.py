"""Values that change during a run. Imports no torch."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import ActionValueConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Schedule
from remuda.config.workers import StopConfig

DECAY_PARTS = 5
"""Exploration falls over this fraction of a run (1 / n)."""
LONGEST_DECAY_ENV_STEPS = 1_000_000


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
