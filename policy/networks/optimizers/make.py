"""The optimizer that a config names, for every algorithm."""

from __future__ import annotations

from remuda.config.optimizers import BUILT_IN_OPTIMIZERS, AdamSettings, RmspropSettings
from remuda.config.schema import ExperimentConfig
from remuda.policy.networks.flat_parameters import FlatPart
from remuda.policy.networks.optimizers.adam import Adam
from remuda.policy.networks.optimizers.base import Optimizer
from remuda.policy.networks.optimizers.custom import CustomOptimizer
from remuda.policy.networks.optimizers.rmsprop import Rmsprop


def make_optimizer(config: ExperimentConfig, part: FlatPart, *, learning_rate: float | None = None) -> Optimizer:
    """Make what moves these parameters along their gradient, by `learner.optimizer` and its settings, at the learner's
    learning rate unless they have one of their own. Raises UserCodeError where a user's class cannot be made."""
    learner, vector, gradient = config.learner, part.vector, part.gradient
    rate = learner.learning_rate if learning_rate is None else learning_rate
    kind = BUILT_IN_OPTIMIZERS.get(learner.optimizer)
    if kind is None:
        named, given = learner.optimizer, learner.optimizer_settings
        return CustomOptimizer(vector, gradient, named, given, learning_rate=rate, source_dir=config.source_dir)
    settings = kind.model_validate(learner.optimizer_settings)
    if isinstance(settings, RmspropSettings):
        return Rmsprop(vector, gradient, settings, learning_rate=rate)
    assert isinstance(settings, AdamSettings)
    return Adam(vector, gradient, settings, learning_rate=rate)
