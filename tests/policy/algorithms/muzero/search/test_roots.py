"""Priors of the roots: normalised over legal actions, and mixed with noise."""

from __future__ import annotations

import numpy as np

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


def test_gumbel_noise_is_added_to_logits() -> None:
    found = roots(GUMBEL, None, row(1.5, -2.0, 0.0))
    np.testing.assert_allclose(found.scores, np.log(PRIOR.astype(np.float64)) + row(1.5, -2.0, 0.0), rtol=1e-6)
    np.testing.assert_array_equal(found.prior, PRIOR)
    np.testing.assert_allclose(roots(GUMBEL).scores, np.log(PRIOR.astype(np.float64)), rtol=1e-6)
