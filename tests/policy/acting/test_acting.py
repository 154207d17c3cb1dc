"""What is promised of acting: numpy equals torch, exploring follows epsilon, misfits are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.environments.unsupported import UnsupportedSpaceError
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.algorithms.dqn.entry import DqnPolicy
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.cases import ACTION, OBSERVATION, config, dqn


def acting(policy: DqnConfig, seed: int = 0, action: ActionSpec = ACTION) -> DqnPolicy:
    acts = DqnPolicy(policy, OBSERVATION, action)
    acts.load_state(dqn(policy, seed=seed, action=action).acting_state())
    return acts


@settings(max_examples=40, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple),
    dueling=st.booleans(),
    actions=st.integers(1, 5),
    rows=st.integers(1, 70),
    seed=st.integers(0, 1000),
)
def test_numpy_and_torch_agree(hidden: tuple[int, ...], dueling: bool, actions: int, rows: int, seed: int) -> None:
    policy = DqnConfig(hidden=hidden, dueling=dueling)
    algorithm = dqn(policy, action=ActionSpec(actions), seed=seed)
    acts = DqnPolicy(policy, OBSERVATION, ActionSpec(actions))
    acts.load_state(algorithm.acting_state())
    observations = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
    with torch.inference_mode():
        expected = algorithm.network(torch.tensor(observations)).numpy()
    np.testing.assert_allclose(acts.q_values(observations), expected, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(acts.value(observations), expected.max(axis=1), atol=1e-5, rtol=1e-5)


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


def test_acting_without_weights_says_so() -> None:
    acts = make_policy(config(), OBSERVATION, ACTION)
    with pytest.raises(RuntimeError, match="no weights yet"):
        acts.act(np.zeros((1, 4), np.float32), {}, np.random.default_rng(0), deterministic=True)


def test_a_state_of_another_network_is_refused_and_the_old_weights_stay() -> None:
    acts = acting(DqnConfig(hidden=(16, 8)))
    observations = np.ones((3, 4), np.float32)
    before = acts.q_values(observations)
    with pytest.raises(StateMismatchError, match=r"policy: torso\.0\.weight has shape \(32, 4\), needed is \(16, 4\)"):
        acts.load_state(dqn(DqnConfig(hidden=(32, 8))).acting_state())
    np.testing.assert_array_equal(acts.q_values(observations), before)


@pytest.mark.parametrize("dueling", [False, True])
def test_both_sides_are_made_from_one_config(dueling: bool) -> None:
    chosen = config(DqnConfig(hidden=(16, 8), dueling=dueling))
    algorithm = make_algorithm(chosen, OBSERVATION, ACTION, 0)
    acting, seen = make_policy(chosen, OBSERVATION, ACTION), np.ones((3, 4), np.float32)
    acting.load_state(algorithm.acting_state())
    with torch.inference_mode():
        best = algorithm.network(torch.from_numpy(seen)).argmax(1).numpy()
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(acting.act(seen, {}, rng, deterministic=True), best)


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


def test_nothing_besides_the_action_is_recorded() -> None:
    acts, observations = acting(DqnConfig(hidden=(8,))), np.zeros((5, 4), np.float32)
    actions, recorded = acts.act_recording(observations, {"epsilon": 0.5}, np.random.default_rng(1))
    expected = acts.act(observations, {"epsilon": 0.5}, np.random.default_rng(1), deterministic=False)
    np.testing.assert_array_equal(actions, expected)
    assert recorded == {}
