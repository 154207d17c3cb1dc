"""Returns, discounted returns and lengths are those of the definition, however the steps are cut into stretches."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.collector.recorder import EpisodeTotals


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


def test_episodes_that_are_abandoned_or_not_counted_bring_nothing_to_the_next() -> None:
    totals = EpisodeTotals(2, discount=0.5)
    one, ten = np.ones((1, 2), np.bool_), np.full((1, 2), 10.0)
    totals.add(ten, one, ~one)
    totals.abandon()
    totals.add(ten, one, ~one)
    totals.abandon(np.array([True, False]))
    ended = totals.add(np.full((1, 2), 4.0), one, one)
    assert (ended.returns.tolist(), ended.discounted.tolist(), ended.lengths.tolist()) == ([4, 14], [4, 12], [1, 2])
    ended = totals.add(ten, one, one, np.array([[False, True]]))
    assert ended.returns.tolist() == [10], "the end of the other is not counted"
    assert totals.add(ten, one, one).returns.tolist() == [10, 10]
