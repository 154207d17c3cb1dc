"""Acting: numpy equals torch, exploration follows epsilon, and observations that do not fit are errors."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.algorithms.dqn.entry import DqnPolicy
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.cases import ACTION, OBSERVATION, config, dqn


def acting(policy: DqnConfig, seed: int = 0, action: ActionSpec = ACTION) -> DqnPolicy:
    acts = DqnPolicy(policy, OBSERVATION, action)
    acts.load_state(dqn(policy, seed=seed, action=action).acting_state())
    return acts


def test_deterministic_acting_takes_the_best_and_draws_nothing() -> None:
    acts, rng = acting(DqnConfig(hidden=(8,))), np.random.default_rng(0)
    observations = rng.normal(size=(50, 4)).astype(np.float32)
    before = rng.bit_generator.state
    actions = acts.act(observations, {}, rng, deterministic=True)
    np.testing.assert_array_equal(actions, acts.q_values(observations).argmax(axis=1))
    assert actions.dtype == np.int64
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_share_of_other_actions_is_epsilon(epsilon: float) -> None:
    acts, rng, n = acting(DqnConfig(hidden=(8,)), action=ActionSpec(4)), np.random.default_rng(0), 20_000
    observations = rng.normal(size=(n, 4)).astype(np.float32)
    best = acts.act(observations, {}, rng, deterministic=True)
    actions = acts.act(observations, {"epsilon": epsilon}, rng, deterministic=False)
    expected = epsilon * 3 / 4  # a random action is the best one by chance
    tolerance = 4 * np.sqrt(expected * (1 - expected) / n)
    assert abs(float((actions != best).mean()) - expected) <= tolerance


def test_same_generator_same_actions_and_actions_start_where_the_space_does() -> None:
    acts = acting(DqnConfig(hidden=(8,)), action=ActionSpec(3, start=7, dtype="int32"))
    observations = np.zeros((1000, 4), np.float32)
    first, second = (
        acts.act(observations, {"epsilon": 0.9}, np.random.default_rng(5), deterministic=False) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    assert first.dtype == np.int32
    assert set(first.tolist()) == {7, 8, 9}


def test_discrete_observations() -> None:
    observation = ObservationSpec((), "int64", n=6)
    acts = DqnPolicy(DqnConfig(hidden=(8,)), observation, ACTION)
    acts.load_state(dqn(DqnConfig(hidden=(8,)), observation=observation).acting_state())
    assert acts.act(np.arange(6), {}, np.random.default_rng(0), deterministic=True).shape == (6,)


def test_actions_that_cannot_be_counted_are_refused() -> None:
    box = ActionSpec(None, 0, "float32", (1,), (-1.0,), (1.0,))
    with pytest.raises(UnsupportedSpaceError, match=r"action space Box\(1,\) is not supported by dqn"):
        make_policy(config(), OBSERVATION, box)
    with pytest.raises(UnsupportedSpaceError, match=r"action space Box\(1,\) is not supported by dqn"):
        make_algorithm(config(), OBSERVATION, box, 0)
