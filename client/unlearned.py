"""What to change after a run that was over before its first update."""

from __future__ import annotations

import math

from remuda.config.schema import ExperimentConfig
from remuda.policy.row_plan import row_plan


def nothing_learned(config: ExperimentConfig, *, reason: str | None, train_iter: int) -> str | None:
    """Say how many steps an update needs, if a run ended for `reason`, which is stop.max_env_steps, at `train_iter` 0,
    although it was to learn: its end looks like any other, and its policy is the one that it began with.

    Of several policies the first is told of. None where there is nothing to say.
    """
    if train_iter or config.learner.inference or reason != "max_env_steps":
        return None
    own = config.of_policy(next(iter(config.policies))) if config.policies else config
    plan, buffer, batch_size = row_plan(own), own.buffer, own.learner.batch_size
    if plan.on_policy:
        steps = plan.slots_for(plan.rows_per_update)
        why = f"{plan.rows_per_update} segments of {plan.slots_per_row} steps"
        which = "policy.horizon_steps, env.num_envs or learner.segments_per_update"
    else:
        rows = buffer.min_rows + math.ceil(batch_size / (buffer.samples_per_insert or batch_size))
        steps = plan.slots_for(rows + plan.rows_held_back)
        kind = "sequences" if plan.overlapping else "rows"
        why = f"buffer.min_rows is {buffer.min_rows} {kind}, learner.batch_size {batch_size}"
        which = "these"
    return (
        f"nothing was learned: the first update needs about {steps} environment steps ({why}). Raise "
        f"stop.max_env_steps, or lower {which}"
    )
