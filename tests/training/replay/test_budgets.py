"""What a run may still take is what the setting `stop` leaves, and never less than nothing."""

from __future__ import annotations

import pytest

from remuda.tests.coordinator.configs import config, on_policy_config
from remuda.training.replay.accounting import ReplayAccounting


@pytest.mark.parametrize(("env_step", "left"), [(0, 3_000), (2_999, 1), (3_000, 0), (3_063, 0)])
def test_environment_steps(env_step: int, left: int) -> None:
    bounded = config(stop={"max_env_steps": 3_000})
    replay = ReplayAccounting(bounded, 0.0)
    replay.ledger.env_step = env_step
    assert replay.env_steps_left() == left


@pytest.mark.parametrize(("train_iter", "batches"), [(0, 4), (6, 4), (7, 3), (10, 0), (12, 0)])
def test_of_four_batches_those_that_are_left_of_ten_updates(train_iter: int, batches: int) -> None:
    bounded = config(stop={"max_env_steps": 3_000, "max_train_iters": 10})
    assert ReplayAccounting(bounded, 0.0).allowed_batches(4, train_iter) == batches


def test_without_a_bound_all_that_are_wanted() -> None:
    free = config()
    assert ReplayAccounting(free, 0.0).allowed_batches(4, 10**9) == 4


def test_on_policy_the_commander_alone_ends_a_run_by_its_updates() -> None:
    bounded = on_policy_config(0, stop={"max_env_steps": 3_000, "max_train_iters": 10})
    assert ReplayAccounting(bounded, 0.0).allowed_batches(1, 12) == 1
