"""Positions and returns of windows: counted by hand, and against plain loops over episodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.policy.algorithms.muzero.networks import Support
from remuda.policy.algorithms.muzero.targets import Positions, Returns
from remuda.policy.networks.tensors import scaled, unscaled
from remuda.tests.policy.algorithms.muzero.cases import two_hot


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def flags(*values: bool) -> np.ndarray:
    return np.array(values, np.bool_)


# Rows of K = 2, n = 2: W = 4. Row 0 goes on; row 1 was cut after one step; row 2 terminated with its first step.
STEPS, TERMINATED = ints(4, 1, 1), flags(False, False, True)


def positions() -> Positions:
    return Positions.of(STEPS, TERMINATED, unroll_steps=2)


def test_positions_by_hand() -> None:
    got = positions()
    assert got.counts == (3, 3, 2)  # row 1 has no position 2: nobody knows what followed
    assert list(zip(got.row.tolist(), got.position.tolist(), strict=True)) == [
        *((0, 0), (2, 0), (1, 0)),
        *((0, 1), (2, 1), (1, 1)),
        *((0, 2), (2, 2)),
    ]
    assert got.acted.tolist() == [True, True, True, True, False, False, True, False]
    assert got.valued.tolist() == [True, True, True, True, True, False, True, True]
    assert got.seen.tolist() == [True, True, True, True, True, True, True, False]


def test_actions_are_those_taken_and_by_chance_after_the_end() -> None:
    taken = positions().actions(np.array([[1, 2], [3, 0], [4, 0]]), np.array([[7, 8], [7, 8], [7, 8]]))
    assert taken.tolist()[:6] == [1, 4, 3, 2, 8, 8]  # from positions 0 and 1; those of position 2 lead to none


def test_rewards_come_with_the_step_to_a_position() -> None:
    reward = np.array([[1, 2, 3, 4], [5, 9, 9, 9], [6, 9, 9, 9]], np.float32)
    assert positions().rewards(reward).tolist() == [1, 6, 5, 2, 0]


@pytest.mark.parametrize(
    ("discount", "expected"),
    [
        # row 0: 1 + 2 g + g² v(2), 2 + 3 g + g² v(3), 3 + 4 g + g² v(4). Row 1: 5 + g v(1). Row 2: 6, and 0 after it.
        (0.5, [1 + 1 + 0.25 * 12, 6, 5 + 0.5 * 11, 2 + 1.5 + 0.25 * 13, 0, 0, 3 + 2 + 0.25 * 14, 0]),
        # two players: 1 - 2 g + g² v(2) …
        (-0.5, [1 - 1 + 0.25 * 12, 6, 5 - 0.5 * 11, 2 - 1.5 + 0.25 * 13, 0, 0, 3 - 2 + 0.25 * 14, 0]),
    ],
)
def test_returns_by_hand(discount: float, expected: list[float]) -> None:
    reward = np.array([[1, 2, 3, 4], [5, 0, 0, 0], [6, 0, 0, 0]], np.float32)
    returns = Returns.of(positions(), reward, STEPS, TERMINATED, n_step=2, discount=discount)
    whole = returns.with_values((10 + returns.observation).astype(np.float32))  # v(k) = 10 + k
    np.testing.assert_allclose(whole, np.array(expected, np.float32), rtol=1e-6)
    assert returns.bootstrapped.tolist() == [0, 2, 3, 6]  # nobody asks the network what would come to nothing


def by_loops(
    reward: np.ndarray, steps: int, terminated: bool, values: np.ndarray, position: int, *, n_step: int, discount: float
) -> float:
    """The paper's appendix B: up to n rewards, and the value of the state after them unless it is terminal."""
    total, factor, step = 0.0, 1.0, position
    while step < min(position + n_step, steps):
        total, factor, step = total + factor * float(reward[step]), factor * discount, step + 1
    ended = terminated and step >= steps
    return total if ended else total + factor * float(values[step])


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=8),
    st.sampled_from([0.9, -0.9, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_returns_against_loops(
    unroll_steps: int, n_step: int, rows: list[tuple[int, bool]], discount: float, seed: int
) -> None:
    window = unroll_steps + n_step
    steps = ints(*(min(length, window) for length, _ in rows))
    terminated = flags(*(ended for _, ended in rows))
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(len(rows), window)).astype(np.float32)  # what lies after the end changes nothing
    values = rng.normal(size=(len(rows), window + 1)).astype(np.float32)
    places = Positions.of(steps, terminated, unroll_steps=unroll_steps)
    returns = Returns.of(places, reward, steps, terminated, n_step=n_step, discount=discount)
    whole = returns.with_values(values[places.row[returns.bootstrapped], returns.observation])
    for index in np.flatnonzero(places.valued):
        row, position = places.row[index], int(places.position[index])
        expected = by_loops(
            reward[row], steps[row], terminated[row], values[row], position, n_step=n_step, discount=discount
        )
        assert whole[index] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert sorted(places.row[: places.counts[0]].tolist()) == list(range(len(rows)))
    assert sum(places.counts) == len(places.row)
    for row, (step, ended) in enumerate(zip(steps, terminated, strict=True)):
        has = places.position[places.row == row]
        assert has.tolist() == list(range((unroll_steps if ended else min(step, unroll_steps)) + 1))


# --- values and rewards as distributions

NUMBERS = st.floats(-60_000.0, 60_000.0)


def doubles(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.0, 0.0),
        (3.0, 2.0 - 1.0 + 0.003),  # sqrt(3 + 1) - 1 + 0.001 * 3
        (-3.0, -1.003),
        (99.0, 9.0 + 0.099),
        (-8.0, -2.008),
    ],
)
def test_scale_by_hand(number: float, expected: float) -> None:
    assert float(scaled(doubles(number))) == pytest.approx(expected, abs=1e-12)


@given(NUMBERS)
def test_the_inverse_is_exact(number: float) -> None:
    assert float(unscaled(scaled(doubles(number)))) == pytest.approx(number, rel=1e-12, abs=1e-12)


def test_two_hot_by_hand() -> None:
    # h(3) = 1.003 lies between the atoms 1 and 2 of -2 … 2, which have the indices 3 and 4.
    distribution = two_hot(Support(2), doubles(3.0, 0.0, 1e6, -1e6))
    expected = np.array([[0, 0, 0, 0.997, 0.003], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]])
    np.testing.assert_allclose(distribution.numpy(), expected, atol=1e-12)


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_a_two_hot_distribution_means_its_number(numbers: list[float]) -> None:
    support = Support(310)
    distribution = two_hot(support, doubles(*numbers))
    np.testing.assert_allclose(distribution.sum(1).numpy(), 1.0, rtol=1e-12)
    assert int((distribution > 0).sum(1).max()) <= 2
    np.testing.assert_allclose(support.mean(distribution).numpy(), np.array(numbers), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(  # and by its logarithm, where that is no infinity
        support.expectation((distribution + 1e-300).log()).numpy(), np.array(numbers), rtol=1e-9, atol=1e-9
    )


def test_cross_entropy_is_that_of_the_two_hot_distribution() -> None:
    support, rng = Support(5), np.random.default_rng(0)
    logits, numbers = torch.from_numpy(rng.normal(size=(40, 11))), torch.from_numpy(rng.normal(size=40) * 30)
    expected = -(two_hot(support, numbers) * logits.log_softmax(1)).sum(1)
    torch.testing.assert_close(support.cross_entropy(logits, numbers), expected)
