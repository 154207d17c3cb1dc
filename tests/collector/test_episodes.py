"""Returns, discounted returns and lengths are those of the definition, however the steps are cut into stretches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from remuda.collector.episodes import EpisodeTotals


def stretch(*slots: tuple[float, str]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Of one environment: rewards, and `.` for a step, `!` for an episode's last, `r` for a reset."""
    reward = np.array([[paid] for paid, _ in slots])
    return reward, np.array([[what != "r"] for _, what in slots]), np.array([[what == "!"] for _, what in slots])


def test_two_episodes_by_hand() -> None:
    totals = EpisodeTotals(1, discount=0.5)
    assert totals.add(*stretch((0.0, "r"), (1.0, "."), (2.0, "."))).returns.size == 0
    ended = totals.add(*stretch((4.0, "!"), (0.0, "r"), (8.0, "!"), (0.0, "r"), (3.0, ".")))
    assert ended.returns.tolist() == [7.0, 8.0]
    assert ended.discounted.tolist() == [1 + 0.5 * 2 + 0.25 * 4, 8.0]
    assert ended.lengths.tolist() == [3, 1]
    (last,) = totals.add(*stretch((2.0, "!"))).discounted
    assert last == 3 + 0.5 * 2


def test_episodes_are_in_order_of_ending() -> None:
    totals = EpisodeTotals(2, discount=0.5)
    two = np.full((3, 2), 2.0)
    assert totals.add(two, np.ones((3, 2), np.bool_), np.zeros((3, 2), np.bool_)).lengths.tolist() == []
    real = np.array([[True, True], [True, False], [False, True]])
    over = np.array([[False, True], [True, False], [False, True]])
    ended = totals.add(1.0 * real, real, over)
    # Environment 1 ends at once (6 + 1), then 0 (6 + 2), then 1 again after its reset.
    assert ended.returns.tolist() == [7.0, 8.0, 1.0]
    assert ended.discounted.tolist() == [3.5 + 0.125, 3.5 + 0.125 + 0.0625, 1.0]
    assert ended.lengths.tolist() == [4, 5, 1]


def test_an_abandoned_episode_counts_for_nothing() -> None:
    totals = EpisodeTotals(1, discount=0.5)
    totals.add(*stretch((100.0, "."), (100.0, ".")))
    totals.abandon()
    ended = totals.add(*stretch((0.0, "r"), (1.0, "."), (2.0, "!")))
    assert (ended.returns.tolist(), ended.discounted.tolist(), ended.lengths.tolist()) == ([3.0], [2.0], [2])


@pytest.mark.parametrize(("discount", "expected"), [(0.0, 5.0), (1.0, 5.0 * 2_000)])
def test_the_ends_of_the_range(discount: float, expected: float) -> None:
    totals = EpisodeTotals(1, discount=discount)
    steps = [(5.0, ".")] * 1_000
    totals.add(*stretch((0.0, "r"), *steps))
    assert totals.add(*stretch(*steps[1:], (5.0, "!"))).discounted.tolist() == [expected]


@settings(deadline=None)
@given(
    num_envs=st.integers(1, 4),
    stretches=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    discount=st.sampled_from([0.0, 0.5, 0.9, 0.999, 1.0]),
    seed=st.integers(0, 1_000),
)
def test_however_steps_are_cut(num_envs: int, stretches: list[int], discount: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    over = rng.random((sum(stretches), num_envs)) < 0.25
    real = np.ones_like(over)
    for t in range(1, len(over)):
        real[t] = ~over[t - 1]
        over[t] &= real[t]
    reward = rng.normal(size=over.shape) * real
    expected: list[tuple[float, float, int]] = []
    under_way: list[list[float]] = [[] for _ in range(num_envs)]
    for t, env in np.ndindex(*over.shape):
        if real[t, env]:
            under_way[env].append(float(reward[t, env]))
        if over[t, env]:
            paid, under_way[env] = under_way[env], []
            discounted = math.fsum(value * discount**k for k, value in enumerate(paid))
            expected.append((math.fsum(paid), discounted, len(paid)))
    totals = EpisodeTotals(num_envs, discount=discount)
    cuts = np.cumsum(stretches)[:-1]
    parts = (np.split(array, cuts) for array in (reward, real, over))
    got = [episode for part in zip(*parts, strict=True) for episode in zip(*totals.add(*part), strict=True)]
    np.testing.assert_allclose(np.array(got).reshape(-1, 3), np.array(expected).reshape(-1, 3), rtol=1e-9, atol=1e-9)


def test_an_end_that_is_not_counted_begins_the_next_episode_all_the_same() -> None:
    totals = EpisodeTotals(1, discount=0.5)
    reward, real, done = stretch((0.0, "r"), (1.0, "."), (2.0, "!"), (0.0, "r"), (4.0, "!"))
    ended = totals.add(reward, real, done, np.array([[False], [False], [True], [False], [False]]))
    assert (ended.returns.tolist(), ended.discounted.tolist(), ended.lengths.tolist()) == ([4.0], [4.0], [1])


def test_the_episode_of_one_environment_may_be_abandoned() -> None:
    totals = EpisodeTotals(2, discount=0.5)
    one = np.ones((1, 2), np.bool_)
    totals.add(np.full((1, 2), 10.0), one, ~one)
    totals.abandon(np.array([True, False]))
    ended = totals.add(np.full((1, 2), 4.0), one, one)
    assert (ended.returns.tolist(), ended.discounted.tolist(), ended.lengths.tolist()) == ([4, 14], [4, 12], [1, 2])
