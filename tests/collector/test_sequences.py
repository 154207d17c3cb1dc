"""Sequences: stretches of time that overlap, through the ends of episodes, whatever the chunks are."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from remuda.collector.collected import Collected
from remuda.collector.rows import SequenceRows
from remuda.config.algorithms.q_learning import R2d2Config
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.copies import LocalCopies
from remuda.environments.spaces import Array
from remuda.policy.row_plan import row_plan
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.counting import Counting, CountsAlong
from remuda.wire.messages import PolicyRef


def rollout(slots: int, period: int, *lengths: int, terminates: bool = True) -> OneRollout:
    envs = [partial(Counting, length, terminates=terminates) for length in lengths]
    vector: Any = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    rows = SequenceRows(slots=slots, period_slots=period, discount=0.9)
    return OneRollout(vector, CountsAlong(), rows=rows, rng=np.random.default_rng(0), seeds=[1] * len(lengths))


def test_sequences_by_hand() -> None:
    """Episodes of 3 steps with a reset after each; rows of 5 slots, one every 2."""
    collected = rollout(5, 2, 3).collect(6, {}, policy_ref=PolicyRef(1, 4, 40))
    columns = {name: values.squeeze().tolist() for name, values in collected.columns.items()}
    assert columns == {
        "obs": [[0.0, 1.0, 2.0, 3.0, 0.0, 1.0], [2.0, 3.0, 0.0, 1.0, 2.0, 3.0]],
        "action": [[0] * 5] * 2,
        "reward": [[1.0, 2.0, 3.0, 0.0, 1.0], [3.0, 0.0, 1.0, 2.0, 3.0]],
        "terminated": [[False, False, True, False, False], [True, False, False, False, True]],
        "done": [[False, False, True, False, False], [True, False, False, False, True]],
        "valid": [[True, True, True, False, True], [True, False, True, True, True]],
        "state": [[0.0, 0.0], [2.0, 2.0]],
    }
    assert (collected.env_steps, collected.rows, collected.policy) == (6, 2, PolicyRef(1, 4, 40))


@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    slots=st.integers(1, 9),
    period=st.integers(1, 9),
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=6),
)
def test_chunks_of_any_size_give_the_rows_of_one(lengths: list[int], slots: int, period: int, sizes: list[int]) -> None:
    """And each begins `period` slots after the one before. The policy itself checks the states that it is given."""
    collecting, whole = rollout(slots, period, *lengths), rollout(slots, period, *lengths)
    chunks = [collecting.collect(size, {}) for size in sizes]
    assert collecting.flush().rows == 0
    given = joined(chunks)
    together = whole.collect(sum(chunk.env_steps for chunk in chunks) + 8 * slots, {}).columns
    assert len(together["reward"]) >= len(given["reward"])
    for name, column in given.items():
        np.testing.assert_array_equal(column, together[name][: len(column)], err_msg=name)
    for env in range(len(lengths)):
        rows = given["obs"][env :: len(lengths), :, 0]
        if period <= slots:
            assert all(before[period] == after[0] for before, after in itertools.pairwise(rows))
    np.testing.assert_array_equal(given["state"], np.repeat(given["obs"][:, 0], 2, axis=1))


class FromFive(Counting):
    action_space = spaces.Discrete(3, start=5)


class TakesFive(CountsAlong):
    def act(self, observations: Array, *given: Any, **options: Any) -> Array:
        return super().act(observations, *given, **options) + 5


def test_slots_without_an_action_have_one_of_the_space() -> None:
    """The reset of all copies for a new task, where no policy is asked: R2D2 looks the value of every slot up."""
    rows = SequenceRows(slots=5, period_slots=5, discount=0.9)
    collecting = OneRollout(LocalCopies.of_one_agent([FromFive(9, terminates=True)]), TakesFive(), rows=rows, seeds=[1])
    first = collecting.collect(7, {})
    collecting.move(LocalCopies.of_one_agent([FromFive(9, terminates=True)]), [2])
    columns = joined([first, collecting.collect(20, {})])
    assert not columns["valid"].all(), "the reset is in one of the rows"
    assert (columns["action"] == 5).all()


def joined(chunks: list[Collected]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([chunk.columns[name] for chunk in chunks]) for name in chunks[0].columns}


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    period=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
)
def test_a_plan_knows_the_most_rows_of_a_chunk(lengths: list[int], period: int, sizes: list[int]) -> None:
    policy = R2d2Config(burn_in_steps=1, sequence_steps=period, overlap_steps=0, n_step=2)
    config = ExperimentConfig(name="x", env=EnvConfig(id="CartPole-v1", num_envs=len(lengths)), policy=policy)
    plan, collecting = row_plan(config), rollout(period + 2, period, *lengths)
    assert (plan.slots_per_row, plan.chunk_slots) == (period, max(64, period * len(lengths)))
    for size in sizes:
        chunk = collecting.collect(size, {})
        assert chunk.rows <= plan.most_rows(chunk.env_steps)
