"""Segments: whole stretches of time per environment, resets marked, nothing lost between chunks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from remuda.collector.rows import SegmentRows
from remuda.environments.spaces import Array
from remuda.policy.networks.normalisation import running_returns
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.counting import Counting
from remuda.tests.policy.algorithms.untaught import Untaught
from remuda.wire.messages import PolicyRef


class Recording(Untaught):
    """Acts on the parity of the observation and records twice the observation."""

    def act(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> Array:
        if exploration:
            raise RuntimeError("the floor gave way")
        return observations[:, 0].astype(np.int64) % 2

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"log_prob": ((), "float32")}

    def act_recording(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> tuple[Array, Mapping[str, Array]]:
        actions = self.act(observations, exploration, rng, deterministic=False)
        return actions, {"log_prob": (2 * observations[:, 0]).astype(np.float32)}


def rollout(*lengths: int, terminates: bool = True) -> OneRollout:
    envs = [partial(Counting, length, terminates=terminates) for length in lengths]
    vector: Any = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    rows = SegmentRows(discount=0.5)
    return OneRollout(vector, Recording(), rows=rows, rng=np.random.default_rng(0), seeds=[1] * len(lengths))


def test_a_segment_by_hand() -> None:
    collecting = rollout(3)
    first = collecting.collect(6, {}, policy_ref=PolicyRef(1, 4, 40))
    columns = {name: values[0].ravel().tolist() for name, values in first.columns.items() if values.ndim > 1}
    assert columns == {
        "obs": [0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0],  # the slot's observation, and the one after the last slot
        "action": [0, 0, 1, 0, 1, 0],
        "reward": [0.0, 1.0, 2.0, 3.0, 0.0, 1.0],
        "terminated": [False, False, False, True, False, False],
        "done": [False, False, False, True, False, False],
        "valid": [False, True, True, True, False, True],  # the first slot and the one after a done are resets
        "log_prob": [0.0, 0.0, 2.0, 4.0, 6.0, 0.0],
    }
    assert first.columns["version"].tolist() == [4]
    assert (first.env_steps, first.rows, first.episode_returns, first.policy) == (4, 1, [6.0], PolicyRef(1, 4, 40))


@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4), horizon=st.integers(1, 9), chunks=st.integers(1, 5))
def test_chunks_have_one_shape_and_join_without_a_seam(lengths: list[int], horizon: int, chunks: int) -> None:
    collecting = rollout(*lengths)
    collected = [collecting.collect(horizon * len(lengths), {}) for _ in range(chunks)]
    assert {chunk.columns["obs"].shape for chunk in collected} == {(len(lengths), horizon + 1, 1)}
    assert sum(chunk.env_steps for chunk in collected) == sum(int(chunk.columns["valid"].sum()) for chunk in collected)
    for env, length in enumerate(lengths):
        valid = np.concatenate([chunk.columns["valid"][env] for chunk in collected])
        reward = np.concatenate([chunk.columns["reward"][env] for chunk in collected])[valid]
        # the rewards of real steps count through the episodes, chunk after chunk
        assert reward.tolist() == [float(step % length + 1) for step in range(len(reward))]
        for before, after in itertools.pairwise(collected):
            assert before.columns["obs"][env, -1] == after.columns["obs"][env, 0]
    assert sum(len(chunk.episode_returns) for chunk in collected) == sum(
        int(chunk.columns["done"].sum()) for chunk in collected
    )


@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4), horizon=st.integers(1, 9))
def test_running_returns_do_not_depend_on_the_horizon(lengths: list[int], horizon: int) -> None:
    def sums(slots: int) -> list[list[float]]:
        collecting, found = rollout(*lengths), [list[float]() for _ in lengths]
        for _ in range(36 // slots):
            rows = collecting.collect(slots * len(lengths), {}).columns
            for env, own in enumerate(found):
                row = slice(env, env + 1)
                columns = (rows[name][row] for name in ("reward", "done", "valid", "return_so_far"))
                own += running_returns(*columns, discount=0.5).tolist()
        return found

    for got, whole in zip(sums(horizon), sums(36), strict=True):
        np.testing.assert_allclose(got, whole[: len(got)], rtol=1e-6)


def test_an_episode_that_was_abandoned_brings_nothing_to_the_next() -> None:
    collecting = rollout(30)
    collecting.collect(4, {})
    with pytest.raises(RuntimeError, match="gave way"):
        collecting.collect(4, {"fails": 1.0})
    assert collecting.collect(4, {}).columns["return_so_far"].tolist() == [0.0]
