"""Priors of the roots: legal actions share what there is, and noise is mixed in."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.policy.algorithms.muzero.search.roots import ILLEGAL, root_prior
from remuda.policy.algorithms.muzero.search.settings import Floats

PRIOR = np.array([[0.5, 0.3, 0.2]], np.float32)


def noise(*numbers: float) -> Floats:
    return np.array([numbers], np.float32)


def test_priors_alone_are_taken_as_they_are() -> None:
    np.testing.assert_array_equal(root_prior(PRIOR, None, None, 0.25), PRIOR)


def test_legal_actions_share_what_illegal_ones_had() -> None:
    legal = np.array([[True, False, True]])
    np.testing.assert_allclose(root_prior(PRIOR, legal, None, 0.0), [[0.5 / 0.7, ILLEGAL, 0.2 / 0.7]], rtol=1e-6)


def test_noise_is_mixed_in() -> None:
    mixed = root_prior(PRIOR, None, noise(0.1, 0.1, 0.8), 0.25)
    np.testing.assert_allclose(mixed, [[0.75 * 0.5 + 0.025, 0.75 * 0.3 + 0.025, 0.75 * 0.2 + 0.2]], rtol=1e-6)


def test_noise_of_illegal_actions_goes_to_legal_ones() -> None:
    mixed = root_prior(PRIOR, np.array([[True, False, True]]), noise(0.1, 0.5, 0.4), 0.5)
    np.testing.assert_allclose(mixed, [[0.5 * 5 / 7 + 0.1, ILLEGAL, 0.5 * 2 / 7 + 0.4]], rtol=1e-6)


def test_where_legal_actions_have_nothing_they_get_equal_shares() -> None:
    legal = np.array([[True, True, False]])
    np.testing.assert_array_equal(root_prior(noise(0, 0, 1), legal, noise(0, 0, 1), 0.25), [[0.5, 0.5, ILLEGAL]])


def test_noise_over_legal_actions_is_distributed_as_if_it_were_drawn_for_them() -> None:
    """A Dirichlet distribution of which some components are left out and the others scaled is one of these."""
    rng = np.random.default_rng(0)
    drawn = rng.dirichlet([0.3] * 4, 20_000).astype(np.float32)
    legal = np.tile([True, True, False, False], (20_000, 1))
    kept = root_prior(np.full(drawn.shape, 0.25, np.float32), legal, drawn, 1.0)[:, 0]
    # Beta(0.3, 0.3): mean 1/2, variance 1 / (4 · 1.6).
    assert kept.mean() == pytest.approx(0.5, abs=0.015)
    assert kept.var() == pytest.approx(1 / 6.4, abs=0.005)


def test_what_is_no_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="noise of shape"):
        root_prior(PRIOR, None, np.ones((1, 2), np.float32), 0.25)
    for wrong in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="noise must be finite"):
            root_prior(PRIOR, None, noise(0, 0, wrong), 0.25)
    for fraction in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="fraction of noise"):
            root_prior(PRIOR, None, noise(0, 0, 1), fraction)
