"""Updates of SAC, CrossQ and TD3: a textbook's numbers by autograd, targets by hand, and states that continue."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import numpy as np
import pytest
import torch

from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.twin_critics import IqlConfig, SacConfig, Td3Config
from remuda.config.learning import LearnerConfig
from remuda.policy.algorithms.twin_critics.iql import Iql
from remuda.policy.algorithms.twin_critics.learning import TwinCriticLearner, TwinCriticNetwork
from remuda.policy.algorithms.twin_critics.sac import DiscreteSac, Sac
from remuda.policy.algorithms.twin_critics.td3 import Td3
from remuda.policy.base import LearnResult
from remuda.policy.spaces import ActionSpec
from remuda.tests.policy.algorithms.twin_critics import cases
from remuda.tests.policy.algorithms.twin_critics.cases import COUNTED, PUSH, Policy, batch, made, values

SMALL = (16, 8)
KINDS: dict[str, tuple[Policy, ActionSpec]] = {
    "sac": (SacConfig(hidden=SMALL), PUSH),
    "sac, a fixed temperature": (SacConfig(hidden=SMALL, temperature=0.3), PUSH),
    "sac, counted actions": (SacConfig(hidden=SMALL), COUNTED),
    "td3": (Td3Config(hidden=SMALL), PUSH),
    "iql": (IqlConfig(hidden=SMALL), PUSH),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def learner(kind: str, *, seed: int = 0) -> TwinCriticLearner[Any]:
    policy, action = KINDS[kind]
    return made(policy, action, seed=seed)


def told(result: LearnResult, metric: str) -> float:
    return float(torch.as_tensor(result.metrics[metric]).mean())


def assert_same_networks(
    algorithm: TwinCriticLearner[Any], online: torch.nn.Module, target: Mapping[str, torch.Tensor]
) -> None:
    for name, parameter in online.named_parameters():
        np.testing.assert_allclose(algorithm.acting_state()[name], parameter.detach(), atol=2e-5, err_msg=name)
    held = cast("Mapping[str, torch.Tensor]", algorithm.state()["target_model"])
    assert held.keys() == target.keys()
    for name, tensor in target.items():
        np.testing.assert_allclose(held[name], tensor, atol=2e-5, err_msg=name)


# --- against torch's own pieces
@pytest.mark.parametrize(("temperature", "critics"), [(None, 2), (0.3, 5)])
def test_an_update_of_sac_equals_the_textbook_in_plain_torch(temperature: float | None, critics: int) -> None:
    policy = SacConfig(
        hidden=SMALL, critics=critics, temperature=temperature, target_share=0.1, actor_learning_rate=3e-3
    )
    algorithm = made(policy)
    online, target = cases.networks(algorithm)
    critic_adam, actor_adam = (
        torch.optim.Adam(part.parameters(), lr=rate) for part, rate in ((online.critics, 1e-2), (online.actor, 3e-3))
    )
    own = torch.nn.Parameter(torch.zeros(1)) if online.log_temperature is None else online.log_temperature
    temperature_adam = torch.optim.Adam([own], lr=1e-2)
    rng = np.random.default_rng(0)
    for update in range(6):
        rows = batch(rng)
        t = cases.tensors(rows)
        result = algorithm.learn(rows)
        noise = cases.noise(update, 4)
        alpha = temperature if temperature is not None else float(own.detach().exp())
        with torch.no_grad():
            action, log_prob = cases.density(online, t["next_obs"], noise[:, 2:])
            soft = values(target, t["next_obs"], action).amin(0) - alpha * log_prob
            y = t["reward"] + t["discount"] * soft
        q = values(online, t["obs"], cases.unit(t["action"]))
        critic_loss = sum((0.5 * t["weights"] * (each - y) ** 2).mean() for each in q)
        action, log_prob = cases.density(online, t["obs"], noise[:, :2])
        actor_loss = (alpha * log_prob - values(online, t["obs"], action).amin(0)).mean()
        temperature_loss = -(own * (log_prob.detach() - 2.0)).mean()
        assert isinstance(critic_loss, torch.Tensor)
        actor_gradients = torch.autograd.grad(actor_loss, list(online.actor.parameters()))  # before critics have moved
        cases.step(critic_adam, critic_loss, online.critics.parameters())
        for parameter, gradient in zip(online.actor.parameters(), actor_gradients, strict=True):
            parameter.grad = gradient
        actor_adam.step()
        if temperature is None:
            cases.step(temperature_adam, temperature_loss, [own])
        cases.follow(target.critics, online.critics, 0.1)
        assert told(result, "critic_loss") == pytest.approx(float(critic_loss.detach()), rel=1e-4)
        assert told(result, "policy_loss") == pytest.approx(float(actor_loss.detach()), rel=1e-4, abs=1e-5)
        assert told(result, "entropy") == pytest.approx(-float(log_prob.detach().mean()), rel=1e-4)
        assert told(result, "temperature") == pytest.approx(alpha, rel=1e-5)
        assert result.priorities is not None
        np.testing.assert_allclose(result.priorities, (q - y).abs().mean(0).detach(), rtol=1e-4, atol=1e-6)
    assert_same_networks(algorithm, online, target.critics.state_dict())


@pytest.mark.parametrize("masks", [False, True])
def test_an_update_of_counted_actions_equals_the_textbook_in_plain_torch(masks: bool) -> None:
    """Illegal actions get logits of -1e9 here, because autograd gives nan for infinite ones."""
    algorithm = made(SacConfig(hidden=SMALL, target_share=0.1, target_entropy_share=0.5), COUNTED)
    online, target = cases.networks(algorithm)
    assert online.log_temperature is not None
    adams = [
        torch.optim.Adam(parameters, lr=1e-2)
        for parameters in (online.critics.parameters(), online.actor.parameters(), [online.log_temperature])
    ]
    rng = np.random.default_rng(0)
    for _ in range(6):
        rows = batch(rng, COUNTED)
        legal = np.ones((2, 16, 4), np.bool_)
        if masks:
            legal = rng.random(legal.shape) < 0.5
            legal[0, np.arange(16), rows["action"] - 1] = True
            legal[1, :, 2] = True
            rows |= {"legal": legal[0], "next_legal": legal[1]}
        low, next_low = (torch.where(torch.from_numpy(each), 0.0, -1e9) for each in legal)
        largest = torch.from_numpy(legal[0]).sum(1).log().mean()
        t = cases.tensors(rows)
        alpha = float(online.log_temperature.detach().exp())
        with torch.no_grad():
            coming = online(t["next_obs"]) + next_low
            soft = (coming.softmax(1) * target.critics(t["next_obs"]).amin(0)).sum(1) + alpha * cases.entropy(coming)
            y = t["reward"] + t["discount"] * soft
        q = online.critics(t["obs"])[:, torch.arange(16), t["action"] - 1]
        critic_loss = (0.5 * t["weights"] * (q - y) ** 2).mean(1).sum()
        now = online(t["obs"]) + low
        least = online.critics(t["obs"]).amin(0).detach()
        actor_loss = -(alpha * cases.entropy(now) + (now.softmax(1) * least).sum(1)).mean()
        temperature_loss = (online.log_temperature * (cases.entropy(now).mean().detach() - 0.5 * largest)).sum()
        losses = (critic_loss, actor_loss, temperature_loss)
        parts = (online.critics.parameters(), online.actor.parameters(), [online.log_temperature])
        for adam, loss, part in zip(adams, losses, parts, strict=True):
            cases.step(adam, loss, part)
        cases.follow(target.critics, online.critics, 0.1)
        result = algorithm.learn(rows)
        assert told(result, "policy_loss") == pytest.approx(float(actor_loss.detach()), rel=1e-4)
        assert told(result, "critic_loss") == pytest.approx(float(critic_loss.detach()), rel=1e-4)
    assert_same_networks(algorithm, online, target.critics.state_dict())


def test_an_update_of_iql_equals_the_textbook_in_plain_torch() -> None:
    """An expectile of the critics' values, critics that bootstrap by it, and a weighted imitation; observations are
    normalised by all so far."""
    algorithm = made(IqlConfig(hidden=SMALL, target_share=0.1, expectile=0.8, advantage_weight=2.0, largest_weight=1.5))
    online, target = cases.networks(algorithm)
    assert online.state_value is not None
    parts = (online.state_value, online.critics, online.actor)
    adams = [torch.optim.Adam(part.parameters(), lr=1e-2) for part in parts]
    rng, seen = np.random.default_rng(0), np.zeros((0, 3))
    for _ in range(6):
        rows = batch(rng)
        rows["obs"] = rows["obs"] * np.array([0.01, 1.0, 300.0], np.float32) + np.float32(2.0)
        seen = np.concatenate((seen, rows["obs"]))
        normal = {name: ((rows[name] - seen.mean(0)) / seen.std(0)).clip(-10.0, 10.0) for name in ("obs", "next_obs")}
        t = cases.tensors({**rows, **{name: column.astype(np.float32) for name, column in normal.items()}})
        acted, v = cases.unit(t["action"]), online.state_value(t["obs"]).flatten()
        with torch.no_grad():
            y = t["reward"] + t["discount"] * online.state_value(t["next_obs"]).flatten()
            error = values(target, t["obs"], acted).amin(0) - v
        q = values(online, t["obs"], acted)
        value_loss = (t["weights"] * torch.where(error > 0, 0.8, 0.2) * (error + v.detach() - v) ** 2).mean()
        critic_loss = (t["weights"] * (q - y) ** 2).mean(1).sum()
        size = error.detach().square().mean().sqrt()
        weight = torch.minimum((2.0 * error.detach() / size).exp(), torch.tensor(1.5))
        policy_loss = (weight * ((online(t["obs"]).tanh() - acted) ** 2).sum(1)).mean()
        losses = (value_loss, critic_loss, policy_loss)
        for adam, loss, part in zip(adams, losses, parts, strict=True):
            cases.step(adam, loss, part.parameters())
        cases.follow(target.critics, online.critics, 0.1)
        result = algorithm.learn(rows)
        for name, loss in zip(("value_loss", "critic_loss", "policy_loss"), losses, strict=True):
            assert told(result, name) == pytest.approx(float(loss.detach()), rel=1e-4), name
    assert_same_networks(algorithm, online, target.critics.state_dict())


def two_hot(values: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """Probabilities [..., atoms] of evenly spaced returns, with the expectations `values` [...]."""
    near = 1.0 - (values.clamp(returns[0], returns[-1]).unsqueeze(-1) - returns).abs() / (returns[1] - returns[0])
    return near.clamp(min=0.0)


@pytest.mark.parametrize("normalization", [None, "hyperspherical"])
@pytest.mark.parametrize("atoms", [None, 7])
@pytest.mark.parametrize(("unit_length", "target_share"), [(False, None), (True, 0.1)])
def test_an_update_of_crossq_equals_the_textbook_in_plain_torch(
    unit_length: bool, target_share: float | None, atoms: int | None, normalization: Literal["hyperspherical"] | None
) -> None:
    """Normalisation by torch's own BatchNorm1d; each critic reads both observations in one batch. Categorical and
    hyperspherical critics learn rewards divided by the root mean square of the returns so far."""
    hidden = SMALL if normalization is None else (8, 8)
    policy = CrossQConfig(hidden=hidden, actor_hidden=hidden, normalization_share=0.1, policy_delay=2, atoms=atoms)
    given = {"normalize_weights": unit_length, "target_share": target_share, "normalization": normalization}
    algorithm = made(policy.model_copy(update=given))
    assert ("target_model" in algorithm.state()) == (target_share is not None)
    textbook, target = (cases.NormalisedNetworks(algorithm, hidden, atoms or 1) for _ in range(2))
    target.critics.train()
    returns, squares = torch.linspace(-5.0, 5.0, atoms or 1), []
    actor, critics, own = textbook.actor, textbook.critics, torch.nn.Parameter(torch.tensor([0.01]).log())

    def expected(outputs: torch.Tensor) -> torch.Tensor:
        return outputs.squeeze(2) if atoms is None else outputs.softmax(2) @ returns

    critic_adam, actor_adam, temperature_adam = (
        torch.optim.Adam(parameters, lr=1e-2) for parameters in (critics.parameters(), actor.parameters(), [own])
    )
    rng = np.random.default_rng(0)
    for update in range(6):
        rows = batch(rng)
        result, alpha = algorithm.learn(rows), float(own.detach().exp())
        t, noise = cases.seen(algorithm, rows), cases.noise(update, 4)
        with torch.no_grad():
            next_action, next_log_prob = cases.density(actor, t["next_obs"], noise[:, 2:])
        seen, actions = torch.cat((t["obs"], t["next_obs"])), torch.cat((cases.unit(t["action"]), next_action))
        critics.train()
        q, after = textbook.outputs(seen, actions).chunk(2, dim=1)
        critics.eval()
        if target_share is not None:
            _, after = target.outputs(seen, actions).chunk(2, dim=1)
        after, reward, discount = after.detach(), t["reward"], t["discount"]
        if atoms is not None or normalization is not None:
            mean, d = reward.double().mean(), discount.double().mean()
            squares.append(reward.double().var(correction=0) / (1 - d**2) + (mean / (1 - d)) ** 2)
            reward = reward / torch.stack(squares).mean().sqrt().float()
        if atoms is None:
            y = reward + discount * (expected(after).amin(0) - alpha * next_log_prob)
            critic_loss = (0.5 * t["weights"] * (q.squeeze(2) - y) ** 2).mean(1).sum()
        else:
            one, other = after
            lower = torch.where((expected(after)[0] <= expected(after)[1])[:, None], one, other)
            moved = (reward - discount * alpha * next_log_prob)[:, None] + discount[:, None] * returns
            wanted = (lower.softmax(1)[:, :, None] * two_hot(moved, returns)).sum(1)
            divergence = torch.nn.functional.kl_div(q.log_softmax(2), wanted.expand_as(q), reduction="none").sum(2)
            critic_loss = (t["weights"] * divergence).mean(1).sum()
        gradients = torch.autograd.grad(critic_loss, list(critics.parameters()))
        assert told(result, "critic_loss") == pytest.approx(float(critic_loss.detach()), rel=1e-4)
        assert ("policy_loss" in result.metrics) == (update % 2 == 1)
        if update % 2 == 1:
            action, log_prob = cases.density(actor.train(), t["obs"], noise[:, :2])
            actor_loss = (alpha * log_prob - expected(textbook.outputs(t["obs"], action)).amin(0)).mean()
            cases.step(actor_adam, actor_loss, actor.eval().parameters())
            cases.step(temperature_adam, -(own * (log_prob.detach().mean() - 2.0)).sum(), [own])
            assert told(result, "policy_loss") == pytest.approx(float(actor_loss.detach()), rel=1e-4, abs=1e-5)
        for parameter, gradient in zip(critics.parameters(), gradients, strict=True):
            parameter.grad = gradient
        critic_adam.step()
        if update % 2 == 1 and target_share is not None:
            cases.follow(target.critics, critics, target_share)
        textbook.project(unit_length, *((actor, critics) if update % 2 == 1 else (critics,)))
    held = algorithm.acting_state()
    for key, tensor in textbook.state().items():
        np.testing.assert_allclose(held[key], tensor, atol=1e-4, err_msg=key)


def test_an_update_of_td3_equals_the_textbook_in_plain_torch() -> None:
    policy = Td3Config(hidden=SMALL, target_share=0.1, target_noise=0.4, target_noise_clip=0.3, policy_delay=2)
    algorithm = made(policy)
    online, target = cases.networks(algorithm)
    critic_adam, actor_adam = (torch.optim.Adam(part.parameters(), lr=1e-2) for part in (online.critics, online.actor))
    rng = np.random.default_rng(0)
    for update in range(6):
        rows = batch(rng)
        t = cases.tensors(rows)
        result = algorithm.learn(rows)
        noise = (0.4 * cases.noise(update, 2)).clamp(-0.3, 0.3)
        with torch.no_grad():
            action = (target(t["next_obs"]).tanh() + noise).clamp(-1, 1)
            y = t["reward"] + t["discount"] * values(target, t["next_obs"], action).amin(0)
        q = values(online, t["obs"], cases.unit(t["action"]))
        critic_loss = (t["weights"] * (q - y) ** 2).mean(1).sum()
        actor_loss = -values(online, t["obs"], online(t["obs"]).tanh())[0].mean()
        actor_gradients = torch.autograd.grad(actor_loss, list(online.actor.parameters()))
        cases.step(critic_adam, critic_loss, online.critics.parameters())
        assert told(result, "critic_loss") == pytest.approx(float(critic_loss.detach()), rel=1e-4)
        assert ("policy_loss" in result.metrics) == (update % 2 == 1)
        if update % 2 == 1:
            for parameter, gradient in zip(online.actor.parameters(), actor_gradients, strict=True):
                parameter.grad = gradient
            actor_adam.step()
            cases.follow(target, online, 0.1)
            assert told(result, "policy_loss") == pytest.approx(float(actor_loss.detach()), rel=1e-4)
    assert_same_networks(algorithm, online, target.state_dict())


# --- gradients
def losses(algorithm: TwinCriticLearner[Any], action: ActionSpec) -> dict[str, Callable[[], torch.Tensor]]:
    """Loss of each part, with the same rows and noise in float64."""
    given = algorithm._rows(batch(np.random.default_rng(0), action))
    columns = {name: column for name, column in vars(given).items() if torch.is_tensor(column)}
    doubled = {name: column.double() for name, column in columns.items() if column.is_floating_point()}
    rows, noise = dataclasses.replace(given, **doubled), cases.noise(0, 2).double()
    if isinstance(algorithm, Td3):
        return {
            "critics": lambda: algorithm.critic_loss(rows, noise).total,
            "actor": lambda: algorithm.actor_loss(rows).total,
        }
    if isinstance(algorithm, Sac):
        return {
            "critics": lambda: algorithm.critic_loss(rows, noise).total,
            "actor": lambda: algorithm.actor_loss(rows, noise).total,
        }
    if isinstance(algorithm, Iql):
        assert isinstance(algorithm.network, TwinCriticNetwork)
        value, target = algorithm.network.value_of, torch.linspace(-1.0, 1.0, 16).double()
        return {
            "critics": lambda: algorithm.critic_loss(rows).total,
            "actor": lambda: algorithm.actor_loss(rows, target).total,
            "state_value": lambda: algorithm.value_loss(rows, value(rows.obs), target).total,
        }
    assert isinstance(algorithm, DiscreteSac)
    assert isinstance(algorithm.network, TwinCriticNetwork)
    critics = algorithm.network.critics
    return {
        "critics": lambda: algorithm.critic_loss(rows, critics(rows.obs)).total,
        "actor": lambda: algorithm.actor_loss(rows, critics(rows.obs).detach()).total,
        "log_temperature": lambda: algorithm.temperature_loss(rows, 0.7),
    }


@each_kind
def test_a_loss_gives_its_part_the_gradient_of_finite_differences_and_others_none(kind: str) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        algorithm = learner(kind)
    finally:
        torch.set_default_dtype(torch.float32)
    parameters = algorithm._parameters
    for name, loss in losses(algorithm, KINDS[kind][1]).items():
        parameters.backward(loss())
        part = parameters.part(name)
        assert float(part.gradient.norm()) == float(parameters.gradient.norm()) > 0.0
        for seed in range(3):
            direction = torch.randn(part.vector.shape, generator=torch.Generator().manual_seed(seed)).double()
            found: list[float] = []
            for far in (1e-6, -2e-6):
                part.vector.add_(direction, alpha=far)
                found.append(float(loss().detach()))
            part.vector.add_(direction, alpha=1e-6)
            slope = (found[0] - found[1]) / 2e-6
            assert slope == pytest.approx(float(part.gradient @ direction), rel=1e-5, abs=1e-8)


# --- targets by hand: critics and targets that give constants, and an actor of known entropy
@each_kind
def test_each_part_is_clipped_by_its_own_norm(kind: str) -> None:
    policy, action = KINDS[kind]
    algorithm = made(policy, action, learner=LearnerConfig(max_grad_norm=1e-3, learning_rate=1e-2))
    algorithm.learn(batch(np.random.default_rng(0), action))
    result = algorithm.learn(batch(np.random.default_rng(0), action))
    optimizers = cast("Mapping[str, Mapping[str, torch.Tensor]]", algorithm.state()["optimizer"])
    for name in ("critics", "actor"):
        # Adam's mean of one or two gradients of that norm is at most 0.19 times it.
        assert float(optimizers[name]["exp_avg"].norm()) <= 0.19e-3 * 1.001
    assert told(result, "grad_norm") > 1e-3, "logs show the norm from before"
