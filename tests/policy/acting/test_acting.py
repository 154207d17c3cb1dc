"""Acting: numpy equals torch, exploration follows epsilon, and observations that do not fit are errors."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.distributions import epsilon_greedy, epsilon_powers
from remuda.policy.algorithms.dqn.entry import DqnPolicy
from remuda.policy.spaces import ActionSpec
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.stepping import copies_of
from remuda.tests.policy.cases import ACTION, OBSERVATION, dqn


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


# --- different exploration

SEEN = np.random.default_rng(1).normal(size=(4, *OBSERVATION.shape)).astype(np.float32)


def spreading(spread: float) -> DqnPolicy:
    settings = DqnConfig(hidden=(16,), epsilon_spread=spread)
    acts = DqnPolicy(settings, OBSERVATION, ACTION)
    acts.load_state(dqn(settings).acting_state())
    return acts


def drawn(acts: DqnPolicy, number: int = 200) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [acts.act(SEEN, {"epsilon": 0.4}, rng, deterministic=False).tolist() for _ in range(number)]


def test_powers_by_hand() -> None:
    """Two collectors of four environments, with the numbers of the paper."""
    powers = np.concatenate([epsilon_powers(7.0, first, 4, 8) for first in (0, 4)])
    np.testing.assert_allclose(powers, [1, 2, 3, 4, 5, 6, 7, 8])
    np.testing.assert_allclose(0.4 ** powers[[0, 7]], [0.4, 0.4**8])
    assert epsilon_powers(7.0, 0, 1, 1).tolist() == [1.0]  # one alone explores as much as it is told


@pytest.mark.parametrize("first", [0, 4])
def test_each_environment_has_its_own_epsilon(first: int) -> None:
    acts = spreading(7.0)
    acts.take_place(first, 8)
    rng, values = np.random.default_rng(3), acts.q_values(SEEN)
    epsilon = 0.4 ** np.arange(first + 1.0, first + 5.0)
    assert drawn(acts) == [epsilon_greedy(values, epsilon, rng).tolist() for _ in range(200)]


def test_a_collector_tells_its_policy_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    acts = spreading(7.0)
    monkeypatch.setattr(acts, "take_place", lambda first, of: told.append((first, of)))
    config = ExperimentConfig(name="spread", env=EnvConfig(id="CartPole-v1", num_envs=3))
    vector = copies_of(config.env, num_envs=3, source_dir=None, chosen=lambda said: None)
    try:
        OneRollout.made(config, vector, acts, index=2, collectors=5)
    finally:
        vector.close()
    assert told == [(6, 15)]
