"""MuZero without search: only the network's policy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from remuda.policy.algorithms import NoSearchError, make_policy
from remuda.policy.algorithms.muzero.acting import NetworkMuZeroPolicy
from remuda.policy.spaces import ActionSpec
from remuda.tests.policy import cases
from remuda.tests.policy.algorithms.muzero.cases import OBSERVATION, config, muzero

ACTION = ActionSpec(3, 5, "int32")


@pytest.fixture
def pair() -> tuple[NetworkMuZeroPolicy, np.ndarray]:
    """A policy, and its probabilities [20, 3] for the observations of `seen`."""
    algorithm = muzero(action=ACTION)
    rng = np.random.default_rng(3)
    for parameter in algorithm.network.parameters():
        parameter.data.add_(parameter.new_tensor(rng.normal(size=tuple(parameter.shape))))
    acting = make_policy(config(), OBSERVATION, ACTION, search=False)
    assert isinstance(acting, NetworkMuZeroPolicy)
    acting.load_state(algorithm.acting_state())
    logits = algorithm.network.eval()(torch.tensor(seen()))
    return acting, logits.softmax(1).detach().numpy()


def seen() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(20, 3)).astype(np.float32)


def test_it_takes_the_likeliest_action(pair: tuple[NetworkMuZeroPolicy, np.ndarray]) -> None:
    acting, probabilities = pair
    actions = acting.act(seen(), {}, np.random.default_rng(0), deterministic=True)
    assert actions.dtype == np.int32
    np.testing.assert_array_equal(actions - 5, probabilities.argmax(1))
    assert len(set(actions.tolist())) > 1


@pytest.mark.parametrize("deterministic", [True, False])
def test_only_legal_actions_are_taken(pair: tuple[NetworkMuZeroPolicy, np.ndarray], deterministic: bool) -> None:
    acting, probabilities = pair
    legal = np.ones((20, 3), np.bool_)
    legal[np.arange(20), probabilities.argmax(1)] = False
    actions = acting.act(seen(), {}, np.random.default_rng(0), deterministic=deterministic, legal=legal) - 5
    assert legal[np.arange(20), actions].all()
    if deterministic:
        np.testing.assert_array_equal(actions, np.where(legal, probabilities, 0).argmax(1))


def test_actions_are_drawn_by_their_probabilities(pair: tuple[NetworkMuZeroPolicy, np.ndarray]) -> None:
    acting, probabilities = pair
    n = 4_000
    drawn = acting.act(np.repeat(seen()[:1], n, axis=0), {}, np.random.default_rng(0), deterministic=False) - 5
    shares = np.bincount(drawn, minlength=3) / n
    np.testing.assert_allclose(shares, probabilities[0], atol=4 * 0.5 / np.sqrt(n))


def test_an_algorithm_that_does_not_search_has_none_to_leave_out() -> None:
    with pytest.raises(NoSearchError, match="dqn acts without a search, so there is none to leave out"):
        make_policy(cases.config(), cases.OBSERVATION, cases.ACTION, search=False)
