"""Environments with different exploration: epsilon ** (1 + spread * i / (N - 1)), as in Ape-X."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.vectors import make_vector
from remuda.policy.acting.distributions import epsilon_greedy, epsilon_powers
from remuda.policy.algorithms.dqn.entry import DqnPolicy
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.policy.cases import ACTION, OBSERVATION, dqn

SEEN = np.random.default_rng(1).normal(size=(4, *OBSERVATION.shape)).astype(np.float32)


def acting(spread: float) -> DqnPolicy:
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
    acts = acting(7.0)
    acts.take_place(first, 8)
    rng, values = np.random.default_rng(3), acts.q_values(SEEN)
    epsilon = 0.4 ** np.arange(first + 1.0, first + 5.0)
    assert drawn(acts) == [epsilon_greedy(values, epsilon, rng).tolist() for _ in range(200)]


def test_without_a_spread_or_a_place_all_explore_alike() -> None:
    same, placed, unplaced = acting(0.0), acting(0.0), acting(7.0)
    placed.take_place(4, 8)
    assert drawn(same) == drawn(placed) == drawn(unplaced)


def test_a_collector_tells_its_policy_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    acts = acting(7.0)
    monkeypatch.setattr(acts, "take_place", lambda first, of: told.append((first, of)))
    config = ExperimentConfig(name="spread", env=EnvConfig(id="CartPole-v1", num_envs=3))
    vector = make_vector(config.env, num_envs=3, source_dir=None, chosen=lambda said: None)
    try:
        OneRollout.made(config, vector, acts, index=2, collectors=5)
    finally:
        vector.close()
    assert told == [(6, 15)]
