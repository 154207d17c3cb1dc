"""DQN: its numbers by hand, its gradient against torch's, its state, and learning."""

from __future__ import annotations

import copy
from typing import cast

import numpy as np
import pytest
import torch

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.learning import LearnerConfig
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.algorithms.segments import numbers
from remuda.tests.policy.cases import batch, dqn

# --- by hand: two states (one-hot), two actions; the hidden layer copies the state, so the last layer is a table of Q

TABLE = DqnConfig(hidden=(2,), dueling=False, double=False, target_update_iters=1000, normalize_rewards=False)
ONLINE = [[1.0, 2.0], [3.0, 0.5]]  # Q[state][action]
TARGET = [[0.0, 0.0], [10.0, 20.0]]


def tabular(policy: DqnConfig = TABLE, learner: LearnerConfig | None = None, start: int = 0) -> Dqn:
    algorithm = dqn(
        policy,
        learner or LearnerConfig(learning_rate=0.1, max_grad_norm=None),
        observation=ObservationSpec((), "int64", n=2),
        action=ActionSpec(2, start),
    )
    state = algorithm.state()
    for part, table in (("model", ONLINE), ("target_model", TARGET)):
        state[part] = {
            "streams.0.weight": torch.eye(2),
            "streams.0.bias": torch.zeros(2),
            "advantage.weight": torch.tensor(table).T.contiguous(),
            "advantage.bias": torch.zeros(2),
        }
    algorithm.load_state(state)
    return algorithm


def one(*, discount: float, reward: float = 1.0, weight: float = 1.0, action: int = 1) -> dict[str, np.ndarray]:
    """From state 0 by `action` to state 1."""
    return {
        "obs": np.array([0]),
        "next_obs": np.array([1]),
        "action": np.array([action]),
        "reward": np.array([reward], np.float32),
        "discount": np.array([discount], np.float32),
        "weights": np.array([weight], np.float32),
    }


def learnt(algorithm: Dqn, row: dict[str, np.ndarray]) -> dict[str, float]:
    result = algorithm.learn(row)
    assert result.priorities is not None
    return numbers(result.metrics) | {"priority": float(result.priorities[0])}


@pytest.mark.parametrize(
    ("double", "discount", "target"),
    [
        (False, 0.5, 1.0 + 0.5 * 20.0),  # the target network's own best
        (True, 0.5, 1.0 + 0.5 * 10.0),  # the online network prefers action 0 in state 1
        (False, 0.0, 1.0),  # terminated
        (True, 0.0, 1.0),
        (True, 0.9**3, 1.0 + 0.729 * 10.0),  # a truncated or 3-step row bootstraps with what its discount says
    ],
)
def test_target_and_error_by_hand(double: bool, discount: float, target: float) -> None:
    got = learnt(tabular(TABLE.model_copy(update={"double": double})), one(discount=discount))
    assert got["q_value"] == 2.0
    assert got["target_q_value"] == pytest.approx(target)
    assert got["td_error"] == got["priority"] == pytest.approx(abs(target - 2.0))


@pytest.mark.parametrize(
    ("double", "legal", "target"),
    [
        (False, [True, False], 1.0 + 0.5 * 10.0),
        (False, [False, True], 1.0 + 0.5 * 20.0),
        (True, [True, False], 1.0 + 0.5 * 10.0),
        (True, [False, True], 1.0 + 0.5 * 20.0),  # the online network would prefer action 0
    ],
)
def test_the_next_action_is_the_best_of_the_legal_ones(double: bool, legal: list[bool], target: float) -> None:
    row = one(discount=0.5) | {"legal": np.ones((1, 2), np.bool_), "next_legal": np.array([legal])}
    got = learnt(tabular(TABLE.model_copy(update={"double": double})), row)
    assert got["target_q_value"] == pytest.approx(target)


SOFT = TABLE.model_copy(update={"munchausen_share": 0.5, "munchausen_temperature": 2.0})


@pytest.mark.parametrize(
    ("row", "target"),
    [
        # both actions of state 0 have the value 0 and so the probability 1/2: 2 log(1/2) is less than -1
        (one(discount=0.5), 1.0 - 0.5 + 0.5 * 2.0 * np.log(np.exp(10.0 / 2) + np.exp(20.0 / 2))),
        (one(discount=0.0) | {"legal": np.array([[False, True]])}, 1.0),  # the only legal action: probability 1
        (one(discount=0.5) | {"next_legal": np.array([[True, False]])}, 1.0 - 0.5 + 0.5 * 10.0),
        # state 1: log probabilities of -5 and almost 0, times the temperature
        (one(discount=0.0, action=0) | {"obs": np.array([1])}, 1.0 - 0.5),
        (one(discount=0.0) | {"obs": np.array([1])}, 1.0 - 0.5 * 2.0 * np.log(1.0 + np.exp(-5.0))),
    ],
)
def test_munchausen_targets_by_hand(row: dict[str, np.ndarray], target: float) -> None:
    assert learnt(tabular(SOFT), row)["target_q_value"] == pytest.approx(target)


@pytest.mark.parametrize(("max_norm", "applied"), [(0.5, 0.5), (4.0, np.sqrt(10)), (None, np.sqrt(10))])
def test_clipping_shows_the_norm_from_before_and_never_enlarges(max_norm: float | None, applied: float) -> None:
    algorithm = tabular(learner=LearnerConfig(learning_rate=0.1, max_grad_norm=max_norm))
    assert learnt(algorithm, one(discount=0.0, reward=5.0))["grad_norm"] == pytest.approx(np.sqrt(10))
    optimizer = cast("dict[str, torch.Tensor]", algorithm.state()["optimizer"])
    # Adam's first moment after one step is (1 - beta1) times the gradient it was given.
    assert np.linalg.norm(optimizer["exp_avg"].numpy()) == pytest.approx(0.1 * applied, rel=1e-4)


def test_the_target_network_is_a_copy_from_the_last_multiple_of_the_interval() -> None:
    algorithm = dqn(DqnConfig(hidden=(8,), target_update_iters=4))
    rng = np.random.default_rng(0)
    copies: list[bool] = []
    for _ in range(9):
        algorithm.learn(batch(rng))
        state = cast("dict[str, dict[str, torch.Tensor]]", algorithm.state())
        copies.append(all(torch.equal(state["model"][key], state["target_model"][key]) for key in state["model"]))
    assert copies == [False, False, False, True, False, False, False, True, False]


# --- against torch's own pieces
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_an_update_equals_the_textbook_in_plain_torch(dueling: bool, double: bool) -> None:
    policy = DqnConfig(hidden=(16, 8), dueling=dueling, double=double, normalize_rewards=False)
    algorithm = dqn(policy, LearnerConfig(max_grad_norm=0.1))
    online, target = copy.deepcopy(algorithm.network), copy.deepcopy(algorithm.network)
    for parameter in online.parameters():
        parameter.grad = None
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(5):
        rows = batch(rng) | {"weights": rng.random(16).astype(np.float32)}
        t = {name: torch.from_numpy(column) for name, column in rows.items()}
        with torch.no_grad():
            best = (online if double else target)(t["next_obs"]).argmax(1)
            y = t["reward"] + t["discount"] * target(t["next_obs"])[torch.arange(16), best]
        q = online(t["obs"])[torch.arange(16), t["action"]]
        loss = (t["weights"] * torch.nn.HuberLoss(reduction="none")(q, y)).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(online.parameters(), 0.1)
        optimizer.step()
        result = algorithm.learn(rows)
        assert float(result.metrics["total_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    for name, parameter in online.named_parameters():
        np.testing.assert_allclose(algorithm.acting_state()[name], parameter.detach().numpy(), atol=1e-6)
