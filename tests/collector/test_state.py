"""What a policy carries through an episode: from step to step and chunk to chunk, and recorded with the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from remuda.collector.rows import NStepRows, Rows, SegmentRows, UnrollRows
from remuda.policy.base import Policy
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.counting import Counting, CountsAlong
from remuda.tests.policy.algorithms.untaught import Still

KINDS: dict[str, Callable[[], Rows]] = {
    "steps": lambda: NStepRows(n_step=2, discount=0.9),
    "segments": lambda: SegmentRows(discount=0.9),
    "unrolls": lambda: UnrollRows(unroll_steps=2, n_step=1, discount=0.9),
}


def rollout(rows: Rows, *lengths: int, policy: Policy | None = None, terminates: bool = True) -> OneRollout:
    envs = [partial(Counting, length, terminates=terminates) for length in lengths]
    vector: Any = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    acting = policy or CountsAlong()
    return OneRollout(vector, acting, rows=rows, rng=np.random.default_rng(0), seeds=[1] * len(lengths))


@pytest.mark.parametrize("kind", KINDS)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    terminates=st.booleans(),
)
def test_it_counts_the_steps_of_every_episode(
    kind: str, lengths: list[int], sizes: list[int], terminates: bool
) -> None:
    """The policy itself checks what it is given, in every step of chunks of any size; rows hold what it had then."""
    collecting = rollout(KINDS[kind](), *lengths, terminates=terminates)
    for size in sizes:
        columns = collecting.collect(size, {}).columns
        first = columns["obs"] if kind == "steps" else columns["obs"][:, 0]
        assert columns["state"].dtype == np.float32
        np.testing.assert_array_equal(columns["state"], np.repeat(first, 2, axis=1))


def test_after_a_failure_episodes_begin_with_nothing() -> None:
    collecting = rollout(SegmentRows(discount=0.9), 9)
    collecting.collect(4, {})
    with pytest.raises(RuntimeError, match="gave way"):
        collecting.collect(4, {"fails": 1.0})
    assert collecting.collect(3, {}).columns["obs"].ravel().tolist() == [3.0, 0.0, 1.0, 2.0]
    assert collecting.collect(3, {}).columns["state"].tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_state_there_is_no_such_column(kind: str) -> None:
    assert "state" not in rollout(KINDS[kind](), 3, policy=Still()).collect(8, {}).columns
