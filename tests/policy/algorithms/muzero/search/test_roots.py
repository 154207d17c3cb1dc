"""Priors of the roots: normalised over legal actions, and mixed with noise."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.policy.algorithms.muzero.search.rules import (
    ILLEGAL,
    Floats,
    GumbelSettings,
    Mask,
    Roots,
    SearchSettings,
    begin,
)

PRIOR = np.array([[0.5, 0.3, 0.2]], np.float32)
PUCT = SearchSettings(simulations=4)
GUMBEL = SearchSettings(simulations=4, gumbel=GumbelSettings())


def row(*numbers: float) -> Floats:
    return np.array([numbers], np.float32)


def roots(
    settings: SearchSettings,
    legal: Mask | None = None,
    noise: Floats | None = None,
    fraction: float = 0.0,
    prior: Floats = PRIOR,
) -> Roots:
    shape = (len(prior), prior.shape[1])
    return begin(settings, shape, prior, np.zeros(len(prior), np.float32), legal, noise, fraction)


def test_priors_alone_are_taken_as_they_are() -> None:
    np.testing.assert_array_equal(roots(PUCT, fraction=0.25).prior, PRIOR)
    np.testing.assert_array_equal(roots(GUMBEL).prior, PRIOR)


def test_legal_actions_share_what_illegal_ones_had() -> None:
    legal = np.array([[True, False, True]])
    for settings in (PUCT, GUMBEL):
        found = roots(settings, legal).prior
        np.testing.assert_allclose(found, [[0.5 / 0.7, ILLEGAL, 0.2 / 0.7]], rtol=1e-6)


def test_noise_is_mixed_in() -> None:
    mixed = roots(PUCT, None, row(0.1, 0.1, 0.8), 0.25).prior
    np.testing.assert_allclose(mixed, [[0.75 * 0.5 + 0.025, 0.75 * 0.3 + 0.025, 0.75 * 0.2 + 0.2]], rtol=1e-6)


def test_noise_of_illegal_actions_goes_to_legal_ones() -> None:
    mixed = roots(PUCT, np.array([[True, False, True]]), row(0.1, 0.5, 0.4), 0.5).prior
    np.testing.assert_allclose(mixed, [[0.5 * 5 / 7 + 0.1, ILLEGAL, 0.5 * 2 / 7 + 0.4]], rtol=1e-6)


def test_where_legal_actions_have_nothing_they_get_equal_shares() -> None:
    legal = np.array([[True, True, False]])
    mixed = roots(PUCT, legal, row(0, 0, 1), 0.25, prior=row(0, 0, 1)).prior
    np.testing.assert_array_equal(mixed, [[0.5, 0.5, ILLEGAL]])


def test_noise_over_legal_actions_is_distributed_as_if_it_were_drawn_for_them() -> None:
    """A Dirichlet distribution with some components removed and the rest normalised is again Dirichlet."""
    rng = np.random.default_rng(0)
    drawn = rng.dirichlet([0.3] * 4, 20_000).astype(np.float32)
    legal = np.tile([True, True, False, False], (20_000, 1))
    kept = roots(PUCT, legal, drawn, 1.0, prior=np.full(drawn.shape, 0.25, np.float32)).prior[:, 0]
    # Beta(0.3, 0.3): mean 1/2, variance 1 / (4 · 1.6).
    assert kept.mean() == pytest.approx(0.5, abs=0.015)
    assert kept.var() == pytest.approx(1 / 6.4, abs=0.005)


def test_gumbel_noise_is_added_to_logits() -> None:
    found = roots(GUMBEL, None, row(1.5, -2.0, 0.0))
    np.testing.assert_allclose(found.scores, np.log(PRIOR.astype(np.float64)) + row(1.5, -2.0, 0.0), rtol=1e-6)
    np.testing.assert_array_equal(found.prior, PRIOR)
    np.testing.assert_allclose(roots(GUMBEL).scores, np.log(PRIOR.astype(np.float64)), rtol=1e-6)
