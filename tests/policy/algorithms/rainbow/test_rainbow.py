"""Rainbow: its update equals plain torch, acting equals learning, its state continues, and it learns."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.config.learning import LearnerConfig
from remuda.policy.algorithms import declaration
from remuda.policy.algorithms.rainbow.learning import Rainbow
from remuda.policy.base import Arrays
from remuda.tests.policy.algorithms.rainbow.cases import SMALL, experiment, rainbow
from remuda.tests.policy.cases import batch

QUANTILES = SMALL.model_copy(update={"distribution": "quantile"})
PLAIN = SMALL.model_copy(update={"noisy": False})
kinds = pytest.mark.parametrize("policy", [SMALL, QUANTILES, PLAIN], ids=["categorical", "quantile", "not noisy"])


def changed(policy: RainbowConfig, **settings: object) -> RainbowConfig:
    return policy.model_copy(update=settings)


def weights(algorithm: Rainbow) -> bytes:
    return b"".join(array.tobytes() for array in algorithm.acting_state().values())


def tensors(rows: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(column) for name, column in rows.items()}


@pytest.mark.parametrize("legal", [0, 1])
@pytest.mark.parametrize("double", [False, True])
def test_the_next_action_is_the_best_of_the_legal_ones(double: bool, legal: int) -> None:
    """With one legal action, its distribution is the target: without reward and discount, unchanged."""
    algorithm, rng = rainbow(changed(PLAIN, double=double)), np.random.default_rng(0)
    rows = batch(rng) | {"reward": np.zeros(16, np.float32), "discount": np.ones(16, np.float32)}
    rows["next_legal"] = np.tile(np.arange(2) == legal, (16, 1))
    with torch.no_grad():
        expected = algorithm.network(torch.from_numpy(rows["next_obs"])).softmax(2) @ torch.linspace(-2.0, 3.0, 11)
    told = torch.as_tensor(algorithm.learn(rows).metrics["target_q_value"])
    np.testing.assert_allclose(told, expected[:, legal], atol=1e-5)


@pytest.mark.parametrize("policy", [PLAIN, changed(PLAIN, distribution="quantile")], ids=["categorical", "quantile"])
def test_munchausen_targets_expect_the_soft_values(policy: RainbowConfig) -> None:
    """As of Munchausen DQN, from the expected returns (Vieillard et al. 2020, M-DQN)."""
    algorithm, rng = (
        rainbow(changed(policy, munchausen_share=0.9, munchausen_temperature=0.2)),
        np.random.default_rng(0),
    )
    legal = rng.random((16, 2)) < 0.5
    legal[np.arange(16), rng.integers(2, size=16)] = True
    rows = batch(rng) | {"reward": np.zeros(16, np.float32), "discount": np.full(16, 0.5, np.float32)}
    rows["next_legal"], t = legal, tensors(rows)
    returns = torch.linspace(-2.0, 3.0, 11)
    with torch.no_grad():
        of, after = (algorithm.network(t[name]) for name in ("obs", "next_obs"))
        values, then = (one.softmax(2) @ returns if policy is PLAIN else one.mean(2) for one in (of, after))
        then[~torch.from_numpy(legal)] = -1e9
        bonus = 0.9 * (0.2 * (values / 0.2).log_softmax(1)).clamp(-1, 0)[torch.arange(16), t["action"]]
        expected = bonus + 0.5 * 0.2 * (then / 0.2).logsumexp(1)
    told = torch.as_tensor(algorithm.learn(rows).metrics["target_q_value"])
    np.testing.assert_allclose(told, expected, atol=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_an_update_equals_the_textbook_in_plain_torch(double: bool) -> None:
    """Of C51 without noise: the projection is done return by return."""
    policy = changed(PLAIN, double=double)
    learner = LearnerConfig(max_grad_norm=0.1, optimizer_settings={"eps": 1.5e-4})
    algorithm = rainbow(policy, learner)
    online, target = copy.deepcopy(algorithm.network), copy.deepcopy(algorithm.network)
    for parameter in online.parameters():
        parameter.grad = None
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3, eps=1.5e-4)
    returns, step, rng = torch.linspace(-2.0, 3.0, 11), 0.5, np.random.default_rng(0)
    for _ in range(3):
        rows = batch(rng) | {"weights": rng.random(16).astype(np.float32)}
        t, every = tensors(rows), torch.arange(16)
        with torch.no_grad():
            best = ((online if double else target)(t["next_obs"]).softmax(2) @ returns).argmax(1)
            following = target(t["next_obs"])[every, best].softmax(1)
            wanted = torch.zeros(16, 11)
            for row in range(16):
                for atom in range(11):
                    moved = (t["reward"][row] + t["discount"][row] * returns[atom]).clamp(-2.0, 3.0)
                    for to in range(11):
                        wanted[row, to] += following[row, atom] * max(0.0, 1.0 - abs(float(moved - returns[to])) / step)
        logits = online(t["obs"])[every, t["action"]].log_softmax(1)
        divergence = torch.nn.functional.kl_div(logits, wanted, reduction="none").sum(1)
        loss = (t["weights"] * divergence).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(online.parameters(), 0.1)
        optimizer.step()
        result = algorithm.learn(rows)
        assert float(result.metrics["total_loss"]) == pytest.approx(float(loss.detach()), rel=1e-4)
        assert result.priorities is not None
        np.testing.assert_allclose(result.priorities.numpy(), divergence.detach().numpy(), rtol=1e-3, atol=1e-5)
    for name, parameter in online.named_parameters():
        np.testing.assert_allclose(algorithm.acting_state()[name], parameter.detach().numpy(), atol=1e-5)


@kinds
def test_what_explores_is_declared(policy: RainbowConfig) -> None:
    explores = declaration(experiment(policy)).exploration
    assert list(explores) == (["noise"] if policy.noisy else ["epsilon"])
    quiet = declaration(experiment(policy, LearnerConfig(inference=True))).exploration
    assert quiet == ({"noise": ((0, 0.0),)} if policy.noisy else {"epsilon": ((0, 0.05),)})


def test_random_actions_explore_beside_noise_where_both_are_asked_for() -> None:
    both = changed(SMALL, noisy_epsilon=True, epsilon_start=0.8, epsilon_end=0.2, epsilon_decay_env_steps=50)
    assert declaration(experiment(both)).exploration == {"noise": ((0, 1.0),), "epsilon": ((0, 0.8), (50, 0.2))}
    quiet = declaration(experiment(both, LearnerConfig(inference=True))).exploration
    assert quiet == {"noise": ((0, 0.0),), "epsilon": ((0, 0.2),)}
