"""How many environment steps and updates a run may still take."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig
from remuda.policy.row_plan import RowPlan


class Budgets:
    """The limits of the section `stop`, which collectors and learner keep to as they work, not only once they are
    reached."""

    def __init__(self, config: ExperimentConfig, plan: RowPlan) -> None:
        self._max_env_steps = config.stop.max_env_steps
        self._max_train_iters = None if plan.on_policy else config.stop.max_train_iters
        """None if it limits nothing: on-policy, one batch is requested at a time, and the commander ends the run."""

    def env_steps_left(self, env_step: int) -> int:
        """Environment steps until stop.max_env_steps, after `env_step` of them; never negative."""
        return max(0, self._max_env_steps - env_step)

    def batches(self, wanted: int, train_iter: int) -> int:
        """How many of the `wanted` batches stop.max_train_iters allows after `train_iter` updates; never negative."""
        return wanted if self._max_train_iters is None else max(0, min(wanted, self._max_train_iters - train_iter))
