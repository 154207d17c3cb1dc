"""Bootstrapped DQN: targets and loss by hand, priors that stay as drawn, and a member for each episode."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch

from remuda.config.algorithms.bootstrapped_dqn import BootstrappedDqnConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import make_policy
from remuda.policy.algorithms.bootstrapped_dqn.learning import BootstrappedDqn
from remuda.policy.network_learner import Transitions
from remuda.tests.policy.cases import ACTION, OBSERVATION, answered, batch, config

MEMBERS = 5
POLICY = BootstrappedDqnConfig(hidden=(8,), members=MEMBERS, discount=0.9, target_update_iters=1_000)
CPU = torch.device("cpu")


def experiment(policy: BootstrappedDqnConfig = POLICY) -> ExperimentConfig:
    return config(policy, LearnerConfig(learning_rate=0.01))


def made(policy: BootstrappedDqnConfig = POLICY) -> BootstrappedDqn:
    return BootstrappedDqn(experiment(policy), OBSERVATION, ACTION, seed=0)


def by_hand(weights: dict[str, torch.Tensor], seen: np.ndarray, member: int) -> np.ndarray:
    """Values of a member: its own network, and three times its prior."""

    def network(part: str) -> np.ndarray:
        first, second = (weights[f"{part}.0.{layer}.weight"][member].numpy() for layer in (0, 2))
        biases = [weights[f"{part}.0.{layer}.bias"][member].numpy() for layer in (0, 2)]
        values: np.ndarray = np.maximum(seen @ first + biases[0], 0.0) @ second + biases[1]
        return values

    return network("learned") + 3.0 * network("prior")


@pytest.mark.parametrize("double", [True, False])
def test_each_member_learns_towards_its_own_target(double: bool) -> None:
    algorithm, rng = made(POLICY.model_copy(update={"double": double})), np.random.default_rng(0)
    for _ in range(3):  # so that online and target networks differ
        algorithm.learn(batch(rng))
    rows = batch(rng)
    state = algorithm.state()
    online, target = (
        [by_hand(cast("dict[str, torch.Tensor]", state[part]), rows[seen], member) for member in range(MEMBERS)]
        for part, seen in (("model", "next_obs"), ("target_model", "next_obs"))
    )
    now = [by_hand(cast("dict[str, torch.Tensor]", state["model"]), rows["obs"], member) for member in range(MEMBERS)]
    each = np.arange(16)
    errors = np.stack(
        [
            values[each, rows["action"]]
            - (rows["reward"] + 0.9 * ahead[each, (chooses if double else ahead).argmax(axis=1)])
            for values, chooses, ahead in zip(now, online, target, strict=True)
        ]
    )
    huber = np.where(np.abs(errors) < 1.0, errors**2 / 2, np.abs(errors) - 0.5)
    loss = algorithm.loss(Transitions.of(rows, OBSERVATION, ACTION, CPU, as_vector=False))
    assert float(loss.total.detach()) == pytest.approx(huber.mean(), rel=1e-4)
    assert loss.priorities is not None
    np.testing.assert_allclose(loss.priorities, np.abs(errors).mean(axis=0), rtol=1e-4)


def test_priors_stay_as_drawn_and_are_saved() -> None:
    algorithm, rng = made(), np.random.default_rng(0)
    drawn = {name: array for name, array in algorithm.acting_state().items() if name.startswith("prior.")}
    learned = algorithm.acting_state()["learned.0.0.weight"]
    for _ in range(3):
        algorithm.learn(batch(rng))
    after = algorithm.acting_state()
    assert len(drawn) == 4
    for name, array in drawn.items():
        np.testing.assert_array_equal(after[name], array)
    assert (after["learned.0.0.weight"] != learned).any()


def test_collectors_follow_a_member_for_an_episode() -> None:
    algorithm = made()
    policy, rng = make_policy(experiment(), OBSERVATION, ACTION), np.random.default_rng(0)
    policy.load_state(algorithm.acting_state())
    seen = rng.normal(size=(64, 4)).astype(np.float32)
    with torch.no_grad():
        values = algorithm.network(torch.from_numpy(seen)).numpy()
    state = np.zeros((64, 1), np.float32)
    first = policy.act(seen, {"epsilon": 0.0}, rng, deterministic=False, state=state)
    members = state[:, 0].astype(int) - 1
    assert set(members) == set(range(MEMBERS))
    np.testing.assert_array_equal(first, values[np.arange(64), members].argmax(axis=1))
    second = policy.act(seen, {"epsilon": 0.0}, rng, deterministic=False, state=state)
    np.testing.assert_array_equal(second, first)
    np.testing.assert_array_equal(state[:, 0] - 1, members)


def test_deterministic_actions_are_best_by_the_mean_of_all_members() -> None:
    algorithm, rng = made(), np.random.default_rng(1)
    policy = make_policy(experiment(), OBSERVATION, ACTION)
    policy.load_state(algorithm.acting_state())
    seen = rng.normal(size=(64, 4)).astype(np.float32)
    with torch.no_grad():
        means = algorithm.network(torch.from_numpy(seen)).mean(1).numpy()
    acted = policy.act(seen, {}, rng, deterministic=True, state=np.zeros((64, 1), np.float32))
    np.testing.assert_array_equal(acted, means.argmax(axis=1))
    np.testing.assert_array_equal(answered(algorithm.portable(), "act", seen), acted)
