"""Settings of updates: the config's, with the scheduled or changed numbers at the time of sampling."""

from __future__ import annotations

from collections.abc import Callable

from remuda.config.current import Changes, Values, schedules, values_at, with_values
from remuda.config.custom import settings_of
from remuda.config.schema import ExperimentConfig

Adjust = Callable[[ExperimentConfig, Values], None]
"""Makes an algorithm, in all ranks, continue with a config with these values."""


class LearnerSettings:
    """Adjusts the algorithm before an update with changed settings."""

    def __init__(self, config: ExperimentConfig, adjust: Adjust, changes: Changes | None = None) -> None:
        """`changes` were made before this learner began."""
        self._config, self._adjust = of_own_class(config), adjust
        self._scheduled = bool(schedules(self._config))
        self.values: Values = {}
        """Settings of the newest update that may differ from the config."""
        self.change(changes or {})

    def change(self, changes: Changes) -> None:
        """Use exactly these changes from the next update on."""
        self._changes, self._env_step = changes, -1
        self._still = not self._scheduled and not changes and not self.values

    def follow(self, env_step: int) -> None:
        """Adapt to a batch sampled after `env_step` environment steps."""
        if self._still or env_step == self._env_step:
            return
        self._env_step, values = env_step, values_at(self._config, env_step, self._changes)
        if values != self.values:
            self.values = values
            self._adjust(with_values(self._config, values), values)


def of_own_class(config: ExperimentConfig) -> ExperimentConfig:
    """Return the config with `policy` as the algorithm's settings class. Imports a user's class."""
    return config.model_copy(update={"policy": settings_of(config)})
