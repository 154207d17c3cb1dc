"""The settings that updates learn with: the config's, with the numbers of the moment at which a batch was drawn."""

from __future__ import annotations

from collections.abc import Callable

from remuda.config.current import Changes, Values, schedules, values_at, with_values
from remuda.config.custom import settings_of
from remuda.config.schema import ExperimentConfig

Adjust = Callable[[ExperimentConfig, Values], None]
"""Lets an algorithm, in all its ranks, continue with a config that has these values."""


class LearnerSettings:
    """Adjusts what learns, before an update whose settings have other numbers than those of the update before."""

    def __init__(self, config: ExperimentConfig, adjust: Adjust, changes: Changes | None = None) -> None:
        """`changes` are those that were made before this learner began."""
        self._config, self._adjust = of_own_class(config), adjust
        self._scheduled = bool(schedules(self._config))
        self.values: Values = {}
        """Of the settings that may differ from the config: what the newest update has learned with."""
        self.change(changes or {})

    def change(self, changes: Changes) -> None:
        """From the next update on these changes hold, and no others."""
        self._changes, self._env_step = changes, -1
        self._still = not self._scheduled and not changes and not self.values

    def follow(self, env_step: int) -> None:
        """The next update learns from a batch that was drawn after so many environment steps."""
        if self._still or env_step == self._env_step:
            return
        self._env_step, values = env_step, values_at(self._config, env_step, self._changes)
        if values != self.values:
            self.values = values
            self._adjust(with_values(self._config, values), values)


def of_own_class(config: ExperimentConfig) -> ExperimentConfig:
    """The config with a `policy` of the class of the algorithm's settings, a user's own, too, which is imported."""
    return config.model_copy(update={"policy": settings_of(config)})
