"""Advantages and V-trace equal the papers' sums, episode by episode, for any masks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from remuda.policy.returns import (
    Outcome,
    Returns,
    divergence,
    generalized_advantages,
    n_step_returns,
    n_step_windows,
    vtrace,
)
from remuda.tests.policy.algorithms.segments import episodes_of, outcome

Floats = NDArray[np.float32]


def test_the_divergence_of_two_policies_is_met_on_average() -> None:
    acted, newest = np.array([0.9, 0.1]), np.array([0.5, 0.5])
    log_ratio = np.log(newest / acted)
    drawn = np.repeat(log_ratio, [9, 1]).astype(np.float32)  # as often as the policy that acted draws each
    assert divergence(drawn) == pytest.approx(float((acted * -log_ratio).sum()), rel=1e-6)


cases = st.tuples(st.integers(1, 5), st.integers(1, 12), st.sampled_from([0.0, 0.2, 0.6, 1.0]), st.integers(0, 10**6))
fractions = st.sampled_from([0.0, 0.3, 0.95, 1.0])


def made(case: tuple[int, int, float, int]) -> tuple[Outcome, Floats, Floats]:
    segments, length, ending, seed = case
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(segments, length + 1)).astype(np.float32)
    return outcome(rng, segments, length, ending=ending), values, rng.normal(size=(segments, length)).astype(np.float32)


def error(happened: Outcome, values: Floats, b: int, t: int, *, discount: float) -> float:
    following = 0.0 if happened.terminated[b, t] else values[b, t + 1]
    return float(happened.reward[b, t] + discount * following - values[b, t])


@settings(deadline=None)
@given(case=cases, discount=fractions, gae_lambda=fractions)
def test_advantages_are_sums_of_episodes(case: tuple[int, int, float, int], discount: float, gae_lambda: float) -> None:
    happened, values, _ = made(case)
    expected = np.zeros(happened.reward.shape)
    for b in range(len(expected)):
        for stretch in episodes_of(happened, b):
            errors = [error(happened, values, b, t, discount=discount) for t in stretch]
            for index, t in enumerate(stretch):
                expected[b, t] = sum((discount * gae_lambda) ** k * later for k, later in enumerate(errors[index:]))
    got = generalized_advantages(happened, values, discount=discount, gae_lambda=gae_lambda)
    np.testing.assert_allclose(got, expected, atol=1e-4)
    assert got.dtype == np.float32


@settings(deadline=None)
@given(case=cases, discount=fractions, rho_clip=st.sampled_from([0.5, 1.0, 3.0]), c_clip=st.sampled_from([0.5, 1.0]))
def test_vtrace_is_the_sums_of_each_episode(
    case: tuple[int, int, float, int], discount: float, rho_clip: float, c_clip: float
) -> None:
    happened, values, log_ratio = made(case)
    ratio = np.exp(log_ratio)
    rho, c = np.minimum(rho_clip, ratio), np.minimum(c_clip, ratio)
    targets, advantages = np.zeros(ratio.shape), np.zeros(ratio.shape)
    for b in range(len(ratio)):
        for stretch in episodes_of(happened, b):
            for start, s in enumerate(stretch):
                target, weight = float(values[b, s]), 1.0
                for t in stretch[start:]:
                    target += weight * rho[b, t] * error(happened, values, b, t, discount=discount)
                    weight *= discount * c[b, t]
                targets[b, s] = target
            for s, after in zip(stretch, [*stretch[1:], None], strict=True):
                following = targets[b, after] if after is not None else values[b, s + 1]
                following *= not happened.terminated[b, s]
                advantages[b, s] = rho[b, s] * (happened.reward[b, s] + discount * following - values[b, s])
    trace = vtrace(happened, values, log_ratio, discount=discount, rho_clip=rho_clip, c_clip=c_clip)
    np.testing.assert_allclose(trace.targets, targets, atol=1e-4)
    np.testing.assert_allclose(trace.advantages, advantages, atol=1e-4)
    assert trace.targets.dtype == trace.advantages.dtype == np.float32


@settings(max_examples=50, deadline=None)
@given(case=cases, garbage=st.floats(-(2.0**90), 2.0**90, width=32))
def test_what_a_reset_slot_holds_changes_nothing(case: tuple[int, int, float, int], garbage: float) -> None:
    happened, values, log_ratio = made(case)
    worse = replace(happened, reward=np.where(happened.valid, happened.reward, np.float32(garbage)))
    strange = np.where(happened.valid, log_ratio, np.float32(garbage))
    for got, expected in (
        (
            generalized_advantages(worse, values, discount=0.9, gae_lambda=0.9),
            generalized_advantages(happened, values, discount=0.9, gae_lambda=0.9),
        ),
        *zip(
            vtrace(worse, values, strange, discount=0.9, rho_clip=1.0, c_clip=1.0),
            vtrace(happened, values, log_ratio, discount=0.9, rho_clip=1.0, c_clip=1.0),
            strict=True,
        ),
    ):
        np.testing.assert_array_equal(got, expected)
        assert not got[~happened.valid].any()


# --- windows of n steps

NO = [False] * 6


def test_windows_by_hand() -> None:
    reward = np.array([[1.0], [10.0], [100.0], [0.0], [5.0], [7.0]])
    done = np.array([[False], [False], [True], [False], [False], [False]])
    windows = n_step_windows(reward, done, n_step=3, discount=0.5)
    assert windows.reward[:3, 0].tolist() == [1 + 5 + 25, 10 + 50, 100]
    assert windows.reward[4:, 0].tolist() == [5 + 3.5, 7]
    assert windows.length[:, 0].tolist() == [3, 2, 1, 3, 2, 1]
    assert windows.complete[:, 0].tolist() == [True, True, True, True, False, False]
    longer = n_step_windows(reward, done, n_step=8, discount=0.5)
    assert longer.length[:, 0].tolist() == [3, 2, 1, 3, 2, 1]
    assert longer.complete[:, 0].tolist() == [True, True, True, False, False, False], "only the end completes these"


def returns(reward: list[float], terminated: list[bool], done: list[bool], n_step: int = 3) -> Returns:
    """Returns of one environment, with a reset after each episode."""
    valid = [not before for before in [False, *done[:-1]]]
    columns = (np.array([reward], np.float32), *(np.array([flags]) for flags in (terminated, done, valid)))
    happened = Outcome.of(dict(zip(("reward", "terminated", "done", "valid"), columns, strict=True)))
    return n_step_returns(happened, n_step=n_step, discount=0.5)


def test_the_last_steps_of_a_segment_look_ahead_to_its_end() -> None:
    got = returns([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], NO, NO)
    assert got.reward.tolist() == [[3.0, 6.0, 12.0, 24.0, 32.0, 32.0]]
    assert got.steps.tolist() == [[3, 3, 3, 3, 2, 1]]
    assert got.discount.tolist() == [[0.125, 0.125, 0.125, 0.125, 0.25, 0.5]]


def test_nothing_is_looked_for_behind_the_end_of_an_episode() -> None:
    """Step 2 is the last of its episode, step 3 is the reset, step 4 begins the next."""
    reward, done = [1.0, 2.0, 4.0, 0.0, 16.0, 32.0], [False, False, True, False, False, False]
    for terminated, discounts in ((done, [0.0, 0.0, 0.0]), (NO, [0.125, 0.25, 0.5])):
        got = returns(reward, terminated, done)
        assert got.reward.tolist() == [[3.0, 4.0, 4.0, 0.0, 32.0, 32.0]]
        assert got.steps[0, :3].tolist() == [3, 2, 1]
        assert got.discount.tolist() == [[*discounts, 0.0, 0.25, 0.5]]


def test_the_value_of_the_observation_after_the_steps_stands_for_the_rest() -> None:
    values = np.array([[10.0, 20.0, 40.0, 80.0]], np.float32)
    got = returns([1.0, 2.0, 4.0], NO[:3], NO[:3], n_step=2).bootstrapped(values)
    assert got.tolist() == [[1 + 1 + 0.25 * 40, 2 + 2 + 0.25 * 80, 4 + 0.5 * 80]]
    assert got.dtype == np.float32
