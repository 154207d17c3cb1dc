"""Running moments equal numpy's mean and variance of all values, in pieces of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.policy.networks.normalisation import Moments, running_returns
from remuda.policy.networks.torch_networks import RunningMoments
from remuda.tests.policy.algorithms.segments import episodes_of, outcome


@settings(deadline=None)
@given(
    pieces=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    offset=st.sampled_from([0.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_pieces_add_up_to_the_whole(pieces: list[int], offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [(offset + rng.normal(size=(n, 3)) * [0.1, 1.0, 100.0]).astype(np.float32) for n in pieces]
    moments = Moments.empty(3)
    for piece in rows:
        moments = moments.including(piece)
    whole = np.concatenate(rows).astype(np.float64)
    assert moments.count == len(whole)
    if len(whole):
        np.testing.assert_allclose(moments.mean, whole.mean(axis=0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(moments.variance, whole.var(axis=0), rtol=1e-6, atol=1e-9)


def test_nothing_is_scaled_before_the_first_row_and_constants_do_not_divide_by_zero() -> None:
    empty = Moments.empty(2)
    np.testing.assert_allclose(empty.scale, 1.0)
    assert empty.including(np.empty((0, 2), np.float32)) is empty
    assert np.isfinite(empty.including(np.full((5, 2), 3.0)).scale).all()


def test_a_network_carries_moments_without_loss() -> None:
    moments = Moments(np.array([1e10 / 3]), np.array([1e-10 / 3]), 2.0**40 + 1)
    carried = RunningMoments(1)
    carried.store(moments)
    assert carried.load() == moments
    kept = carried.load()
    carried.store(Moments.empty(1))
    assert kept == moments, "a copy"


def test_running_returns_by_hand() -> None:
    """Discount 1/2: 1, 2 + 1/2, then a reset with an ignored reward, then from 0."""
    reward = np.array([[1, 2, 9, 3]], np.float32)
    done = np.array([[False, True, False, False]])
    valid = np.array([[True, True, False, True]])
    sums = running_returns(reward, done, valid, np.zeros(1, np.float32), discount=0.5)
    np.testing.assert_allclose(sums, [1.0, 2.5, 3.0])
    gone_on = running_returns(reward, done, valid, np.full(1, 4, np.float32), discount=0.5)
    np.testing.assert_allclose(gone_on, [3.0, 3.5, 3.0])


@pytest.mark.parametrize("seed", range(4))
def test_running_returns_are_those_of_each_episode(seed: int) -> None:
    happened = outcome(np.random.default_rng(seed), 4, 11)
    expected = np.zeros(happened.reward.shape)
    for b in range(4):
        for stretch in episodes_of(happened, b):
            for index, t in enumerate(stretch):
                expected[b, t] = sum(0.9 ** (t - s) * happened.reward[b, s] for s in stretch[: index + 1])
    got = running_returns(happened.reward, happened.done, happened.valid, np.zeros(4, np.float32), discount=0.9)
    np.testing.assert_allclose(got, expected[happened.valid], atol=1e-5)
