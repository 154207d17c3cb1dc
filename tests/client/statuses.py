"""States of an experiment, as a coordinator would report them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from remuda.wire.messages import ExperimentStatus

_RUNNING = ExperimentStatus(
    id="eeeeeeee-0000-4000-8000-000000000001",
    name="mine",
    state="running",
    reason=None,
    run_dir="/runs/mine",
    env_step=2_500,
    train_iter=400,
    episode=31,
    policy_version=40,
    wall_s=12.0,
    last_return=187.25,
    best_return=195.5,
    env_steps_per_s=250.0,
    train_iters_per_s=50.0,
    policy_lag=1,
    samples_per_insert=7.9,
    waiting_for=None,
)


def status(**changes: Any) -> ExperimentStatus:
    """A run in the middle, with what the test changes."""
    return replace(_RUNNING, **changes)
