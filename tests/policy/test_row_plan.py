"""How large chunks are where the config leaves it open."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.policy.row_plan import FREE_CHUNK_S, RowPlan, row_plan


def plan(*, collectors: int | None = None, **sections: Any) -> RowPlan:
    config = {"name": "plan", "env": {"id": "CartPole-v1", "num_envs": sections.pop("num_envs", 8)}, **sections}
    return row_plan(ExperimentConfig.model_validate(config), collectors=collectors)


FREE = {"samples_per_insert": None}


def test_a_chunk_is_as_large_as_the_config_says_in_both_modes() -> None:
    for collectors in (None, 1):
        for buffer in ({}, FREE):
            asked = plan(collectors=collectors, collector={"chunk_env_steps": 100}, buffer=buffer)
            assert (asked.chunk_slots, asked.longest_chunk_s) == (100, None)


def test_collectors_that_are_held_back_tell_often() -> None:
    held_back = plan()
    assert (held_back.chunk_slots, held_back.longest_chunk_s) == (64, None)


@pytest.mark.parametrize(
    ("num_envs", "capacity", "chunk"), [(8, 100_000, 4_096), (64, 100_000, 12_500), (8, 2_000, 250)]
)
def test_collectors_that_run_free_tell_seldom_but_in_time(num_envs: int, capacity: int, chunk: int) -> None:
    free = plan(num_envs=num_envs, buffer={**FREE, "capacity": capacity})
    assert (free.chunk_slots, free.longest_chunk_s) == (chunk, FREE_CHUNK_S)


def test_serial_mode_never_ends_a_chunk_by_the_clock() -> None:
    """It learns once per chunk, and gives the same numbers twice."""
    serial = plan(collectors=1, buffer=FREE)
    assert (serial.chunk_slots, serial.longest_chunk_s) == (64, None)


@pytest.mark.parametrize(("asked", "segments"), [(None, 3 * 8), (5, 5)])
def test_on_policy_an_update_learns_from_as_much_in_both_modes(asked: int | None, segments: int) -> None:
    sections: dict[str, Any] = {
        "policy": {"type": "ppo"}, "collector": {"count": 3}, "learner": {"segments_per_update": asked}
    }  # fmt: skip
    assert plan(**sections).rows_per_update == plan(collectors=1, **sections).rows_per_update == segments


def test_on_policy_a_chunk_is_a_segment_of_each_environment() -> None:
    assert plan(policy={"type": "ppo", "horizon_steps": 32}).chunk_slots == 32 * 8


@pytest.mark.parametrize("collectors", [None, 1])
def test_how_often_a_policy_is_published_is_the_same_in_both_modes(collectors: int | None) -> None:
    learner = {"publish_interval_iters": 7}
    assert plan(collectors=collectors, learner=learner).publish_interval_iters == 7
    assert plan(collectors=collectors, learner=learner, policy={"type": "ppo"}).publish_interval_iters == 1
