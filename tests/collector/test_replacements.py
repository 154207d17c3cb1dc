"""What a rollout makes of environments that were made again: no bad step is stored, and every other step is, once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.collector.collected import Collected
from remuda.collector.rows import NStepRows, Rows, SegmentRows, SequenceRows
from remuda.environments.copies import LocalCopies
from remuda.environments.errors import BrokenEnvironmentError, RestartLimit
from remuda.environments.lanes import Copies
from remuda.environments.make import SingleEnv
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.spaces import Array
from remuda.policy.base import Policy
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.collector.test_rollout import (
    DISCOUNT,
    Corridor,
    assert_same_rows,
    episodes_of,
    naive_episodes,
    naive_rows,
    rows_of,
)
from remuda.tests.environments.counting import Counting, CountsAlong, LosesCount
from remuda.tests.environments.scripted import FunctionPolicy, ScriptedEnv, Step
from remuda.tests.policy.algorithms.untaught import Still


class Makers:
    """Builds an environment, and others in its place; `newest` is the one that is in use, by index."""

    def __init__(self, num_envs: int, *, longest: int = 6) -> None:
        self.built: list[ScriptedEnv] = []
        self.newest: dict[int, ScriptedEnv] = {}
        self.vector: Copies = replaceable([partial(self._build, index, longest) for index in range(num_envs)])

    def _build(self, index: int, longest: int) -> ScriptedEnv:
        env = ScriptedEnv(len(self.built), longest=longest)
        self.built.append(env)
        self.newest[index] = env
        return env

    def logs(self) -> list[list[Step]]:
        """What really happened in each, without bad steps."""
        return [[step for step in env.log if math.isfinite(step.reward)] for env in self.built]


def replaceable(builds: Sequence[Any], per_hour: int = 1_000_000) -> Copies:
    limit = RestartLimit(per_hour, lambda text: None)
    envs = [ReplaceableEnv(build, index=index, name="it", broke=limit) for index, build in enumerate(builds)]
    return LocalCopies.of_one_agent(envs)


def rollout_in(vector: Copies, rows: Rows, policy: Policy | None = None) -> OneRollout:
    seeds = [100 + index for index in range(vector.num_envs)]
    return OneRollout(vector, policy or FunctionPolicy(), rows=rows, rng=np.random.default_rng(0), seeds=seeds)


Fails = tuple[int, int, bool]
fails = st.none() | st.tuples(st.integers(0, 2), st.integers(2, 12), st.booleans())


@settings(deadline=None)
@given(
    num_envs=st.integers(1, 3),
    n_step=st.integers(1, 4),
    longest=st.integers(1, 8),
    script=st.lists(st.tuples(st.integers(1, 30), fails), min_size=1, max_size=8),
)
def test_every_good_step_is_a_row_once_and_no_window_reaches_over_a_broken_one(
    num_envs: int, n_step: int, longest: int, script: list[tuple[int, Fails | None]]
) -> None:
    makers = Makers(num_envs, longest=longest)
    rollout = rollout_in(makers.vector, NStepRows(n_step=n_step, discount=DISCOUNT))
    collected: list[Collected] = []
    for asked, fault in script:
        if fault is not None:
            index, within, raises = fault
            victim = makers.newest[index % num_envs]
            victim.fails_in, victim.bad_reward = within, None if raises else math.nan
        before = sum(map(len, makers.logs()))
        collected.append(rollout.collect(asked, {}))
        assert collected[-1].env_steps == sum(map(len, makers.logs())) - before
    collected.append(rollout.flush())
    logs = makers.logs()
    assert_same_rows(rows_of(collected), [row for log in logs for row in naive_rows(log, [], n_step)])
    assert sum(chunk.rows for chunk in collected) == sum(chunk.env_steps for chunk in collected) == sum(map(len, logs))
    assert sum(chunk.counts["env_restart_count"] for chunk in collected) == len(makers.built) - num_envs
    expected = sorted(episode for log in logs for episode in naive_episodes(log, []))
    np.testing.assert_allclose(sorted(episodes_of(collected)), expected, rtol=1e-9, atol=1e-9)


class BreakingCorridor(Corridor):
    """Rewards 1, 2, 3, then it terminates; its step number `breaks` since it was built raises."""

    def __init__(self, breaks: int | None) -> None:
        super().__init__(terminates=True)
        self.breaks, self.steps = breaks, 0

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == self.breaks:
            raise RuntimeError("the walls came down")
        return super().step(action)


def corridors(*breaks: int | None) -> Copies:
    """One environment, which breaks at these steps: that of the first, of the one in its place …"""
    left = list(breaks)
    return replaceable([lambda: BreakingCorridor(left.pop(0))])


def segments(vector: Copies) -> OneRollout:
    return rollout_in(vector, SegmentRows(discount=0.5), Still())


def test_sequences_go_on_over_it_with_the_broken_step_as_a_reset() -> None:
    rollout = rollout_in(corridors(3, None), SequenceRows(slots=4, period_slots=2, discount=0.9), Still())
    chunk = rollout.collect(8, {})
    # After the reset of all: 1 2, the broken step, 1 2 3, a reset, 1 ….
    assert chunk.columns["reward"][:2].tolist() == [[1, 2, 0, 1], [0, 1, 2, 3]]
    assert chunk.columns["valid"][:2].tolist() == [[True, True, False, True], [False, True, True, True]]
    assert chunk.columns["done"][:2].tolist() == [[False, True, False, False], [False, False, False, True]]
    assert chunk.columns["terminated"][:2].tolist() == [[False] * 4, [False, False, False, True]]


def test_a_policy_that_carries_a_state_begins_again_with_0() -> None:
    """CountsAlong fails if what it carries is not what it has seen of the episode."""
    left: list[SingleEnv] = [LosesCount(5, terminates=True), Counting(5, terminates=True)]
    vector = replaceable([lambda: left.pop(0), lambda: Counting(4, terminates=False)])
    rollout = rollout_in(vector, NStepRows(n_step=2, discount=0.9), CountsAlong())
    for _ in range(5):
        chunk = rollout.collect(7, {})
        np.testing.assert_array_equal(chunk.columns["state"][:, 0], chunk.columns["obs"][:, 0])
    assert not left


def test_beyond_the_limit_the_chunk_never_happened() -> None:
    makers: list[SingleEnv] = [BreakingCorridor(2), BreakingCorridor(2)]
    rollout = segments(replaceable([lambda: makers.pop(0)], per_hour=1))
    with pytest.raises(BrokenEnvironmentError, match=r"all 1 restarts .* 1 x RuntimeError: the walls came down$"):
        rollout.collect(20, {})
    assert rollout.flush().rows == 0
