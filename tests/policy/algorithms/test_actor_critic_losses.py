"""Updates of PPO and IMPALA follow the gradient of the paper's loss."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.learning import LearnerConfig
from remuda.policy.algorithms.actor_critic.learning import ActorCritic
from remuda.policy.networks.torch_networks import ActorCriticNetwork
from remuda.policy.returns import Outcome, generalized_advantages, vtrace
from remuda.policy.spaces import ActionSpec
from remuda.tests.policy.algorithms.likelihoods import categorical, gaussian, several
from remuda.tests.policy.algorithms.segments import PUSH, SEVERAL, Batch, batch, numbers, on_policy

Activation = Literal["tanh", "relu"]
OnPolicy = PpoConfig | ImpalaConfig

CLIPPED_IMPALA = ImpalaConfig(clip=0.3, normalize_advantages=True, normalize_rewards=False)
HIDDEN = st.lists(st.integers(1, 24), max_size=3).map(tuple)
ACTIVATION = st.sampled_from(["tanh", "relu"])
SEED = st.integers(0, 2**32 - 1)


def values_of(algorithm: ActorCritic, rows: Batch) -> torch.Tensor:
    made = cast("ActorCriticNetwork", algorithm.network)
    values: torch.Tensor = made.value(made.features(torch.tensor(rows["obs"]).reshape(-1, 4)))
    return values.reshape(len(rows["valid"]), -1)


def log_ratio_and_entropy(algorithm: ActorCritic, rows: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Log ratios of the actions (learning policy to acting policy) and entropies, [n] each."""
    made = cast("ActorCriticNetwork", algorithm.network)
    valid = rows["valid"]
    features = made.features(torch.tensor(rows["obs"]).reshape(-1, 4))
    outputs = made.policy(features).reshape(*rows["obs"].shape[:2], -1)[:, :-1][torch.tensor(valid)]
    actions, spec = torch.tensor(rows["action"][valid]), algorithm.action
    if "legal" in rows:  # a finite number, which autograd can work with
        outputs = torch.where(torch.tensor(rows["legal"][:, :-1][valid]), outputs, -1e9)
    if spec.counts:
        indices = actions.flatten(1).long() - torch.tensor(spec.starts)
        log_prob, entropy = several(outputs, indices, spec.counts)
    elif made.log_std is None:
        log_prob, entropy = categorical(outputs, actions - spec.start)
    else:
        log_prob, entropy = gaussian(outputs, made.log_std, actions)
    return log_prob - torch.tensor(rows["log_prob"][valid]), entropy


def losses(
    algorithm: ActorCritic, rows: Batch, policy: OnPolicy, old_values: torch.Tensor, old_log_ratio: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Of all steps of a batch at once, differentiable; old values and log ratios are from before the first step."""
    valid = rows["valid"]
    values, (log_ratio, entropy) = values_of(algorithm, rows), log_ratio_and_entropy(algorithm, rows)
    outcome = Outcome(rows["reward"], rows["terminated"], rows["done"], valid)
    known = old_values.detach().numpy()
    chosen = values[:, :-1][torch.tensor(valid)]
    if isinstance(policy, PpoConfig):
        advantages = torch.tensor(
            generalized_advantages(outcome, known, discount=policy.discount, gae_lambda=policy.gae_lambda)[valid]
        )
        old = torch.tensor(known[:, :-1][valid])
        returns = advantages + old
        if policy.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - policy.clip, 1 + policy.clip)
        policy_loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        squares = (chosen - returns).square()
        if policy.value_clip is not None:
            held = old + (chosen - old).clamp(-policy.value_clip, policy.value_clip)
            squares = torch.maximum(squares, (held - returns).square())
        value_loss = squares.mean()
    else:
        full = np.zeros(valid.shape, np.float32)
        full[valid] = old_log_ratio.detach().numpy()
        trace = vtrace(outcome, known, full, discount=policy.discount, rho_clip=policy.rho_clip, c_clip=policy.c_clip)
        advantages = torch.tensor(trace.advantages[valid])
        if policy.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
        policy_loss = -(advantages * (log_ratio + torch.tensor(rows["log_prob"][valid]))).mean()
        if policy.clip is not None:  # has the gradient of PPO's loss; advantages hold the weight already
            ratio = log_ratio.exp()
            per_ratio = advantages / ratio.detach()
            clipped = ratio.clamp(1 - policy.clip, 1 + policy.clip)
            policy_loss = -torch.minimum(ratio * per_ratio, clipped * per_ratio).mean()
        value_loss = (chosen - torch.tensor(trace.targets[valid])).square().mean()
    total = policy_loss + policy.value_coefficient * value_loss - policy.entropy_coefficient * entropy.mean()
    return {"total_loss": total, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy.mean()}


def mean_gradient(algorithm: ActorCritic) -> torch.Tensor:
    """Adam's mean after one step is a tenth of the gradient."""
    return cast("dict[str, torch.Tensor]", algorithm.state()["optimizer"])["exp_avg"].clone()


def gradient_of(loss: torch.Tensor, algorithm: ActorCritic) -> torch.Tensor:
    parts = torch.autograd.grad(loss, list(algorithm.network.parameters()))
    return torch.cat([part.reshape(-1) for part in parts])


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """To 1e-6 of the largest."""
    scale = max(1.0, float(expected.abs().max()))
    np.testing.assert_allclose(got / scale, expected / scale, rtol=0.0, atol=1e-6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(["ppo", "impala"]),
    hidden=HIDDEN,
    how=st.tuples(ACTIVATION, st.booleans()),
    entropy_coefficient=st.sampled_from([0.0, 0.3]),
    action=st.sampled_from([ActionSpec(1), ActionSpec(3, start=-1), SEVERAL, PUSH]),
    masks=st.booleans(),
    seed=SEED,
)
def test_an_update_descends_the_loss_of_the_paper(
    kind: str,
    hidden: tuple[int, ...],
    how: tuple[Activation, bool],
    entropy_coefficient: float,
    action: ActionSpec,
    masks: bool,
    seed: int,
) -> None:
    activation, shared = how
    common = {
        "hidden": hidden,
        "activation": activation,
        "shared_hidden": shared,
        "entropy_coefficient": entropy_coefficient,
        "normalize_rewards": False,
    }
    policy: OnPolicy = (
        PpoConfig.model_validate({**common, "epochs": 1, "minibatches": 1})
        if kind == "ppo"
        else ImpalaConfig.model_validate(common)
    )
    rng = np.random.default_rng(seed)
    rows = batch(rng, action=action)
    if masks and not action.is_box:
        rows["legal"] = legal_besides_taken(rng, rows, action)
    algorithm = cast("ActorCritic", on_policy(policy, LearnerConfig(max_grad_norm=None), action=action, seed=seed % 99))
    log_ratio, _ = log_ratio_and_entropy(algorithm, rows)
    of_the_paper = losses(algorithm, rows, policy, values_of(algorithm, rows), log_ratio)
    expected = gradient_of(of_the_paper["total_loss"], algorithm)

    got = numbers(algorithm.learn(rows).metrics)

    for name, loss in of_the_paper.items():
        assert got[name] == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-6)
    assert_close(10.0 * mean_gradient(algorithm), expected)
    assert got["grad_norm"] == pytest.approx(float(expected.norm()), rel=1e-5)


def legal_besides_taken(rng: np.random.Generator, rows: Batch, action: ActionSpec) -> np.ndarray:
    """Masks [B, T + 1, values]: taken actions are legal, and half of the others."""
    shape = rows["valid"].shape
    legal = rng.random((shape[0], shape[1] + 1, sum(action.components))) < 0.5
    taken = action.indices(rows["action"].reshape(-1, *action.shape)).reshape(*shape, -1)
    firsts = np.cumsum((0, *action.components[:-1]))
    np.put_along_axis(legal[:, :-1], taken + firsts, True, axis=2)
    return legal


@pytest.mark.parametrize("action", [ActionSpec(3), SEVERAL, PUSH], ids=["discrete", "several", "box"])
@pytest.mark.parametrize(
    "policy",
    [*(PpoConfig(minibatches=1, clip=0.3, value_clip=clip) for clip in (None, 0.003, 0.02, 10.0)), CLIPPED_IMPALA],
    ids=["whole", "0.003", "0.02", "10", "impala"],
)
def test_a_second_step_descends_the_loss_that_the_first_left(policy: OnPolicy, action: ActionSpec) -> None:
    """Ratios and values have moved: some are clipped, some are not."""
    one, two = (policy.model_copy(update={"hidden": (8,), "epochs": epochs}) for epochs in (1, 2))
    learner = LearnerConfig(learning_rate=0.01, max_grad_norm=None)
    rows = batch(np.random.default_rng(0), segments=12, action=action)
    once, twice = (cast("ActorCritic", on_policy(policy, learner, action=action)) for policy in (one, two))
    old_values, (old_log_ratio, _) = values_of(once, rows).detach(), log_ratio_and_entropy(once, rows)
    once.learn(rows)
    first = mean_gradient(once)
    expected = gradient_of(losses(once, rows, one, old_values, old_log_ratio)["total_loss"], once)
    twice.learn(rows)
    assert_close(10.0 * (mean_gradient(twice) - 0.9 * first), expected)
