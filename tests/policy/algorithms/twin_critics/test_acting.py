"""Acting of SAC and TD3: numpy equals torch, exploration is as declared, and misfits are errors."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config
from remuda.config.learning import LearnerConfig
from remuda.policy.algorithms import declaration, make_policy
from remuda.policy.algorithms.twin_critics.entries import RANDOM
from remuda.policy.base import Policy as ActingPolicy
from remuda.policy.spaces import ActionSpec
from remuda.tests.policy.algorithms.twin_critics.cases import COUNTED, OBSERVATION, PUSH, Policy, config, made

SMALL = (16, 8)
KINDS: dict[str, tuple[Policy, ActionSpec]] = {
    "sac": (SacConfig(hidden=SMALL), PUSH),
    "sac, counted actions": (SacConfig(hidden=SMALL), COUNTED),
    "crossq": (CrossQConfig(hidden=SMALL), PUSH),
    "td3": (Td3Config(hidden=SMALL), PUSH),
    "td3, no hidden layer": (Td3Config(hidden=()), PUSH),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
SEEN = np.random.default_rng(3).normal(size=(40, 3)).astype(np.float32)


def acting(kind: str, seed: int = 0) -> ActingPolicy:
    policy, action = KINDS[kind]
    acts = make_policy(config(policy), OBSERVATION, action)
    acts.load_state(made(policy, action, seed=seed).acting_state())
    return acts


@each_kind
def test_deterministic_acting_draws_nothing_and_the_rest_stays_within_the_space(kind: str) -> None:
    acts, rng = acting(kind), np.random.default_rng(0)
    before = rng.bit_generator.state
    acts.act(SEEN, {}, rng, deterministic=True)
    assert rng.bit_generator.state == before
    action = KINDS[kind][1]
    for share in (0.0, 1.0):
        drawn = acts.act(np.repeat(SEEN, 50, axis=0), {RANDOM: share, "noise": 5.0}, rng, deterministic=False)
        if action.n is None:
            assert drawn.dtype == np.float32
            assert (drawn >= np.array(action.low, np.float32)).all()
            assert (drawn <= np.array(action.high, np.float32)).all()
        else:
            assert set(drawn.tolist()) == {1, 2, 3, 4}


def test_the_noise_of_td3_has_the_size_that_it_should() -> None:
    acts = acting("td3")
    best = acts.act(SEEN[:1], {}, np.random.default_rng(0), deterministic=True)
    drawn = acts.act(
        np.repeat(SEEN[:1], 20_000, axis=0), {RANDOM: 0.0, "noise": 0.05}, np.random.default_rng(0), deterministic=False
    )
    halves = np.array([2.0, 5.0])  # of the bounds of each number
    np.testing.assert_allclose(((drawn - best) / halves).std(0), 0.05, rtol=0.03)


@pytest.mark.parametrize(
    ("steps", "shares"),
    [
        (None, {0: 1.0, 99: 1.0, 100: 0.0}),  # buffer.min_rows is 100
        (7, {0: 1.0, 6: 1.0, 7: 0.0, 1000: 0.0}),
        (1, {0: 1.0, 1: 0.0}),
        (0, {0: 0.0}),
    ],
)
def test_actions_are_random_at_first(steps: int | None, shares: dict[int, float]) -> None:
    for policy in (SacConfig(random_env_steps=steps), Td3Config(random_env_steps=steps)):
        declared = declaration(config(policy))
        assert {step: declared.exploration_at(step)[RANDOM] for step in shares} == shares
        assert declared.least_exploration[RANDOM] == 0.0
    learns_nothing = config(SacConfig(random_env_steps=steps), LearnerConfig(inference=True))
    assert declaration(learns_nothing).exploration_at(0) == {RANDOM: 0.0}


def test_the_best_actions_are_those_of_the_averaged_actor_and_explored_ones_those_of_the_actor() -> None:
    """Without noise TD3 explores by its actor's own actions."""
    policy = Td3Config(hidden=SMALL, averaged_share=0.5)
    state = made(policy, seed=0).acting_state()
    other = made(policy, seed=1).acting_state()
    state |= {name: other[name] for name in state if name.startswith("averaged_actor.")}
    acts, own, average = (make_policy(config(policy), OBSERVATION, PUSH) for _ in range(3))
    acts.load_state(state)
    own.load_state(made(policy, seed=0).acting_state())
    average.load_state(other)
    rng, still = np.random.default_rng(0), {RANDOM: 0.0, "noise": 0.0}
    for deterministic, alike in ((True, average), (False, own)):
        chosen, wanted = (one.act(SEEN, still, rng, deterministic=deterministic) for one in (acts, alike))
        np.testing.assert_array_equal(chosen, wanted)
    assert not np.allclose(
        own.act(SEEN, still, rng, deterministic=True), average.act(SEEN, still, rng, deterministic=True)
    )
