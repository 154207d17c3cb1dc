"""Sizes of chunks that a config leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import config_of_policy
from remuda.policy.row_plan import FREE_CHUNK_S, RowPlan, SmallBufferError, check_buffer, joint_plan, row_plan
from remuda.wire.messages import ChunkId, ChunkMeta, PolicyRef


def plan(*, collectors: int | None = None, **sections: Any) -> RowPlan:
    config = {"name": "plan", "env": {"id": "CartPole-v1", "num_envs": sections.pop("num_envs", 8)}, **sections}
    return row_plan(ExperimentConfig.model_validate(config), collectors=collectors)


FREE = {"samples_per_insert": None}


def test_a_chunk_is_as_large_as_the_config_says_in_both_modes() -> None:
    for collectors in (None, 1):
        for buffer in ({}, FREE):
            asked = plan(collectors=collectors, collector={"chunk_env_steps": 100}, buffer=buffer)
            assert (asked.chunk_slots, asked.longest_chunk_s) == (100, None)


@pytest.mark.parametrize(
    ("num_envs", "capacity", "chunk"), [(8, 100_000, 4_096), (64, 100_000, 12_500), (8, 2_000, 250)]
)
def test_collectors_that_run_free_tell_seldom_but_in_time(num_envs: int, capacity: int, chunk: int) -> None:
    free = plan(num_envs=num_envs, buffer={**FREE, "capacity": capacity})
    assert (free.chunk_slots, free.longest_chunk_s) == (chunk, FREE_CHUNK_S)


def test_serial_mode_never_ends_a_chunk_by_the_clock() -> None:
    """Serial mode learns once per chunk, and is reproducible."""
    serial = plan(collectors=1, buffer=FREE)
    assert (serial.chunk_slots, serial.longest_chunk_s) == (64, None)


@pytest.mark.parametrize(("asked", "segments"), [(None, 3 * 8), (5, 5)])
def test_on_policy_an_update_learns_from_as_much_in_both_modes(asked: int | None, segments: int) -> None:
    sections: dict[str, Any] = {
        "policy": {"type": "ppo"}, "collector": {"count": 3}, "learner": {"segments_per_update": asked}
    }  # fmt: skip
    assert plan(**sections).rows_per_update == plan(collectors=1, **sections).rows_per_update == segments


@pytest.mark.parametrize("collectors", [None, 1])
def test_how_often_a_policy_is_published_is_the_same_in_both_modes(collectors: int | None) -> None:
    learner = {"publish_interval_iters": 7}
    assert plan(collectors=collectors, learner=learner).publish_interval_iters == 7
    assert plan(collectors=collectors, learner=learner, policy={"type": "ppo"}).publish_interval_iters == 1


GAME = {"kind": "pettingzoo", "make": "game:make", "num_envs": 4, "agents": ["a", "b", "c"]}


def plan_of_agents(**sections: Any) -> RowPlan:
    """Plan of a policy shared by three agents in four copies."""
    return row_plan(config_of_policy(ExperimentConfig.model_validate({"name": "plan", "env": GAME, **sections})))


def meta(rows: int, env_steps: int) -> ChunkMeta:
    return ChunkMeta(ChunkId("w", 1, 0), "f", rows, env_steps, 0, 0, PolicyRef(), 0.0)


def test_on_policy_a_step_of_all_agents_uses_credit_once() -> None:
    shared = plan_of_agents(policy={"type": "ppo", "horizon_steps": 32}, collector={"count": 2})
    assert (shared.agents, shared.num_envs, shared.chunk_slots) == (3, 12, 32 * 4)
    assert shared.rows_per_update == 2 * 12
    assert shared.most_rows(100) == 12
    assert joint_plan([shared]).slots([meta(rows=12, env_steps=120)]) == 32 * 4, "a chunk as it should be"
    assert joint_plan([shared]).slots([meta(rows=0, env_steps=120)]) == 0, "nobody acted"
    assert shared.slots_for(24) == 2 * 32 * 4


def test_of_replay_a_step_brings_a_row_of_each_agent() -> None:
    shared = plan_of_agents(policy={"type": "dqn", "n_step": 2}, collector={"chunk_env_steps": 50})
    assert shared.chunk_slots == 50
    assert shared.most_rows(50) == 3 * 50 + 2 * 12
    assert shared.most_chunk_rows == 3 * 50 + 12
    assert joint_plan([shared]).slots([meta(rows=150, env_steps=50)]) == 50
    assert (shared.slots_for(150), shared.slots_for(1), shared.slots_for(0)) == (50, 1, 0)


@pytest.mark.parametrize(
    ("sections", "rows"),
    [
        ({"policy": {"n_step": 1}, "collector": {"chunk_env_steps": 60}}, 64 + 8),  # whole steps of 8 environments
        ({"policy": {"n_step": 3}}, 64 + 3 * 8),
        ({"env": GAME, "policy": {"n_step": 2}, "collector": {"chunk_env_steps": 50}}, 3 * 52 + 2 * 12),
        ({"policy": {"type": "r2d2", "sequence_steps": 20, "burn_in_steps": 10, "overlap_steps": 10}}, 8 * 3),
    ],
)
def test_a_buffer_has_to_hold_a_chunk(sections: dict[str, Any], rows: int) -> None:
    def config(capacity: int) -> ExperimentConfig:
        buffer = {"capacity": capacity, "min_rows": 1}
        settings = {"name": "plan", "env": {"id": "CartPole-v1", "num_envs": 8}, **sections, "buffer": buffer}
        return config_of_policy(ExperimentConfig.model_validate(settings))

    check_buffer(config(rows))
    with pytest.raises(SmallBufferError, match=f"{rows - 1}, and .* can have {rows} rows: raise buffer.capacity"):
        check_buffer(config(rows - 1))


def test_any_buffer_holds_a_chunk_of_collectors_that_run_free() -> None:
    """Not in serial mode, where no chunk ends by time; on-policy there is no such setting."""
    small: dict[str, Any] = {"buffer": {**FREE, "capacity": 60, "min_rows": 1}, "policy": {"n_step": 1}}
    settings = {"name": "plan", "env": {"id": "CartPole-v1", "num_envs": 8}, **small}
    check_buffer(ExperimentConfig.model_validate(settings))
    with pytest.raises(SmallBufferError):
        check_buffer(ExperimentConfig.model_validate(settings), collectors=1)
    settings["policy"] = {"type": "ppo"}
    check_buffer(ExperimentConfig.model_validate(settings))
