"""Updates of SAC and TD3: a textbook's numbers by autograd, targets by hand, and states that continue."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import pytest
import torch

from remuda.config.algorithms.actor_critic import SacConfig, Td3Config
from remuda.config.learning import LearnerConfig
from remuda.policy.algorithms.twin_critics.learning import TwinCriticLearner
from remuda.policy.algorithms.twin_critics.networks import TwinCriticNetwork
from remuda.policy.algorithms.twin_critics.sac import DiscreteSac, Sac
from remuda.policy.algorithms.twin_critics.td3 import Td3
from remuda.policy.base import LearnResult
from remuda.policy.spaces import ActionSpec
from remuda.tests.policy.algorithms.twin_critics import cases
from remuda.tests.policy.algorithms.twin_critics.cases import COUNTED, PUSH, UNCLIPPED, Policy, batch, made, values
from remuda.tests.policy.cases import answered

SMALL = (16, 8)
KINDS: dict[str, tuple[Policy, ActionSpec]] = {
    "sac": (SacConfig(hidden=SMALL), PUSH),
    "sac, a fixed temperature": (SacConfig(hidden=SMALL, temperature=0.3), PUSH),
    "sac, counted actions": (SacConfig(hidden=SMALL), COUNTED),
    "td3": (Td3Config(hidden=SMALL), PUSH),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def learner(kind: str, *, seed: int = 0) -> TwinCriticLearner:
    policy, action = KINDS[kind]
    return made(policy, action, seed=seed)


def told(result: LearnResult, metric: str) -> float:
    return float(torch.as_tensor(result.metrics[metric]).mean())


def weights(algorithm: TwinCriticLearner) -> bytes:
    return b"".join(array.tobytes() for array in algorithm.acting_state().values())


def assert_same_networks(
    algorithm: TwinCriticLearner, online: torch.nn.Module, target: Mapping[str, torch.Tensor]
) -> None:
    for name, parameter in online.named_parameters():
        np.testing.assert_allclose(algorithm.acting_state()[name], parameter.detach(), atol=2e-5, err_msg=name)
    held = cast("Mapping[str, torch.Tensor]", algorithm.state()["target_model"])
    assert held.keys() == target.keys()
    for name, tensor in target.items():
        np.testing.assert_allclose(held[name], tensor, atol=2e-5, err_msg=name)


# --- against torch's own pieces


@pytest.mark.parametrize("temperature", [None, 0.3])
def test_an_update_of_sac_equals_the_textbook_in_plain_torch(temperature: float | None) -> None:
    policy = SacConfig(hidden=SMALL, temperature=temperature, target_share=0.1, actor_learning_rate=3e-3)
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


def losses(algorithm: TwinCriticLearner, action: ActionSpec) -> dict[str, Callable[[], torch.Tensor]]:
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


def constant(algorithm: TwinCriticLearner, *, online: tuple[float, float], target: tuple[float, float]) -> None:
    """Make each critic and target critic constant, and the actor's outputs 0."""
    state = algorithm.state()
    for part, given in (("model", online), ("target_model", target)):
        changed = {
            name: torch.zeros_like(tensor) if "temperature" not in name else tensor
            for name, tensor in cast("Mapping[str, torch.Tensor]", state[part]).items()
        }
        last = max(name for name in changed if name.endswith("bias") and not name.startswith("actor"))
        changed[last] = torch.tensor(given).reshape(2, 1, 1).expand_as(changed[last]).clone()
        state[part] = changed
    algorithm.load_state(state)


@pytest.mark.parametrize(
    ("discount", "counts"),
    [(0.0, 0.0), (0.9, 0.9), (0.9**3, 0.729)],  # terminated; truncated or under way; after three steps
)
@each_kind
def test_targets_have_the_lower_target_value_and_the_entropy_to_come(kind: str, discount: float, counts: float) -> None:
    algorithm = learner(kind)
    constant(algorithm, online=(1.0, 5.0), target=(30.0, 20.0))
    action = KINDS[kind][1]
    rows = batch(np.random.default_rng(0), action, rows=4000)
    rows["discount"], rows["reward"] = np.full(4000, discount, np.float32), np.full(4000, 7.0, np.float32)
    result = algorithm.learn(rows)
    # The entropy of two numbers tanh(u), u standard normal: that of u, and twice the mean of log(1 - tanh²(u)).
    squashed = cases.integral(
        lambda u: np.exp(-u * u / 2) / math.sqrt(2 * math.pi) * np.log(1 - np.tanh(u) ** 2), -8.0, 8.0
    )
    entropy = {"td3": 0.0, "sac, counted actions": math.log(4)}.get(kind, 1.0 + cases.LOG_2_PI + 2 * squashed)
    alpha = 0.3 if "fixed" in kind else 1.0
    expected = 7.0 + counts * (20.0 + alpha * entropy)
    target = torch.as_tensor(result.metrics["target_q_value"])
    assert float(target.mean()) == pytest.approx(expected, abs=0.1)
    assert result.priorities is not None
    errors = ((target - 1.0).abs() + (target - 5.0).abs()) / 2
    np.testing.assert_allclose(result.priorities, errors, rtol=1e-5)


@pytest.mark.parametrize(("target", "rises"), [(-50.0, False), (50.0, True)])
def test_the_temperature_rises_while_the_policy_is_less_random_than_it_should_be(target: float, rises: bool) -> None:
    algorithm = made(SacConfig(hidden=SMALL, target_entropy=target, initial_temperature=0.5))
    before = float(algorithm.acting_state()["log_temperature"][0])
    assert before == pytest.approx(math.log(0.5))
    algorithm.learn(batch(np.random.default_rng(0)))
    after = float(algorithm.acting_state()["log_temperature"][0])
    assert after - before == pytest.approx(0.01 if rises else -0.01, rel=1e-3), "Adam's first step is the rate"


def test_a_fixed_temperature_is_no_parameter() -> None:
    assert "log_temperature" not in learner("sac, a fixed temperature").acting_state()


def test_the_actor_and_the_targets_of_td3_wait_for_their_turn() -> None:
    algorithm = made(Td3Config(hidden=SMALL, policy_delay=3))
    rng = np.random.default_rng(0)
    moved: list[tuple[bool, bool, bool]] = []
    for _ in range(6):
        before = copy.deepcopy(algorithm.state())
        algorithm.learn(batch(rng))
        after = algorithm.state()
        old, new = (cast("Mapping[str, Mapping[str, torch.Tensor]]", state) for state in (before, after))
        moved.append(
            (
                not torch.equal(old["model"]["critics.0.weight"], new["model"]["critics.0.weight"]),
                not torch.equal(old["model"]["actor.0.weight"], new["model"]["actor.0.weight"]),
                not torch.equal(old["target_model"]["actor.0.weight"], new["target_model"]["actor.0.weight"]),
            )
        )
    assert moved == [(True, False, False), (True, False, False), (True, True, True)] * 2


@each_kind
def test_targets_start_as_copies_and_follow_by_their_share(kind: str) -> None:
    algorithm = learner(kind)

    def parts() -> tuple[torch.Tensor, torch.Tensor]:
        state = cast("Mapping[str, Mapping[str, torch.Tensor]]", algorithm.state())
        name = "critics.0.weight" if kind == "td3" else "0.weight"
        return state["model"]["critics.0.weight"].clone(), state["target_model"][name].clone()

    online, target = parts()
    assert torch.equal(online, target)
    for _ in range(2):  # TD3's follow every second time
        algorithm.learn(batch(np.random.default_rng(0), KINDS[kind][1]))
    newest, followed = parts()
    if kind == "td3":
        torch.testing.assert_close(followed, 0.995 * target + 0.005 * newest)
    assert 0.0 < float((followed - target).norm()) < 0.02 * float((newest - target).norm())


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


# --- determinism and state


# --- it learns


@pytest.mark.parametrize("kind", ["sac, a fixed temperature", "sac, counted actions", "td3"])
def test_it_finds_the_best_action_of_a_single_step(kind: str) -> None:
    """The reward is highest for action (1, 6), or for the third discrete action; episodes have one step."""
    policy, action = KINDS[kind]
    algorithm = made(
        policy.model_copy(update={"hidden": (32, 32)}), action, learner=UNCLIPPED.model_copy(update={"batch_size": 64})
    )
    rng = np.random.default_rng(0)
    for _ in range(400):
        rows = batch(rng, action, rows=64)
        if action.n is None:
            aside = rows["action"] - np.array([1.0, 6.0])
            rows["reward"] = -4.0 * (np.square(aside) / np.array([4.0, 25.0])).sum(1).astype(np.float32)
        else:
            rows["reward"] = (rows["action"] == 3).astype(np.float32) * 8.0
        rows["discount"] = np.zeros(64, np.float32)
        rows["weights"] = np.ones(64, np.float32)
        algorithm.learn(rows)
    acted = answered(algorithm.portable(), "act", batch(rng, action)["obs"])
    if action.n is None:
        np.testing.assert_allclose(acted, np.tile([1.0, 6.0], (16, 1)), atol=0.6)
    else:
        assert (acted == 3).all()
