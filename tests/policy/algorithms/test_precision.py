"""Updates in bfloat16 have nearly float32's gradient; weights, files and models stay float32."""

from __future__ import annotations

import copy
from typing import cast

import numpy as np
import pytest
import torch

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.q_learning import DqnConfig, QLearningConfig, RainbowConfig
from remuda.config.learning import LearnerConfig, Precision
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.base import Algorithm
from remuda.policy.spaces import ObservationSpec
from remuda.tests.policy.algorithms.segments import batch as segments_of
from remuda.tests.policy.cases import ACTION, OBSERVATION, answered, transitions

IMAGE = ObservationSpec((4, 84, 84), "uint8", 0.0, 255.0)
Policy = DqnConfig | RainbowConfig | PpoConfig | ImpalaConfig
HIDDEN = (96, 96, 96)
POLICIES: dict[str, Policy] = {
    "dqn": DqnConfig(hidden=HIDDEN),
    "ppo": PpoConfig(hidden=HIDDEN, epochs=1, minibatches=1),
}
OF_IMAGES: dict[str, Policy] = {"dqn": DqnConfig(hidden=(32,)), "impala": ImpalaConfig(hidden=(32,))}


def algorithm(policy: Policy, observation: ObservationSpec, precision: Precision) -> Algorithm:
    config = ExperimentConfig.model_validate(
        {
            "name": "case",
            "env": {"id": "CartPole-v1"},
            "policy": policy,
            "learner": LearnerConfig(max_grad_norm=None, precision=precision),
        }
    )
    made = make_algorithm(config, observation, ACTION, 0)
    assert made.products is not None
    made.products.precision = precision
    return made


def rows(policy: Policy, observation: ObservationSpec) -> dict[str, np.ndarray]:
    rng, image = np.random.default_rng(0), observation.is_image

    def seen(*leading: int) -> np.ndarray:
        shape = (*leading, *observation.shape)
        if image:
            return rng.integers(0, 256, shape, dtype=np.uint8)
        return rng.normal(size=shape).astype(np.float32)

    if isinstance(policy, QLearningConfig):
        return transitions(lambda _, count: seen(count), ACTION, rng, 6 if image else 256)
    segments, slots = (2, 3) if image else (16, 16)
    return segments_of(rng, segments, slots) | {"obs": seen(segments, slots + 1)}


def gradient(of: Algorithm) -> np.ndarray:
    """Adam's mean after one step: a tenth of the gradient."""
    return cast("dict[str, torch.Tensor]", of.state()["optimizer"])["exp_avg"].numpy()


CASES = [(policy, OBSERVATION) for policy in POLICIES.values()] + [(policy, IMAGE) for policy in OF_IMAGES.values()]
NAMES = [*POLICIES, *(f"{name} of images" for name in OF_IMAGES)]


@pytest.mark.parametrize(("policy", "observation"), CASES, ids=NAMES)
def test_an_update_takes_nearly_the_same_step(policy: Policy, observation: ObservationSpec) -> None:
    exact, lower = (algorithm(policy, observation, precision) for precision in ("float32", "bfloat16"))
    batch = rows(policy, observation)
    for each in (exact, lower):
        each.learn(batch)
    assert lower.products is not None
    assert lower.products.lowered
    expected, got = gradient(exact), gradient(lower)
    apart = np.linalg.norm(got - expected) / np.linalg.norm(expected)
    assert 0.0 < apart < 0.1, "of random rows: their gradients nearly cancel out, and their errors do not"
    assert expected @ got / np.linalg.norm(expected) / np.linalg.norm(got) > 0.995


@pytest.mark.parametrize(("policy", "observation"), CASES, ids=NAMES)
def test_what_it_saves_and_publishes_and_exports_is_float32(policy: Policy, observation: ObservationSpec) -> None:
    made, batch = algorithm(policy, observation, "bfloat16"), rows(policy, observation)
    made.learn(batch)
    for part in ("model", "optimizer"):
        for tensor in cast("dict[str, object]", made.state()[part]).values():
            assert not isinstance(tensor, torch.Tensor) or tensor.dtype in (torch.float32, torch.float64)
    acting = made.acting_state()
    assert {array.dtype.name for array in acting.values()} <= {"float32", "float64"}
    seen = batch["obs"].reshape(-1, *observation.shape)[:5]
    config = ExperimentConfig.model_validate({"name": "case", "env": {"id": "CartPole-v1"}, "policy": policy})
    plain = make_policy(config, observation, ACTION)
    plain.load_state(acting)
    portable = copy.deepcopy(made.portable())
    assert portable is not None
    values = answered(portable.eval(), "value", seen)  # as what is exported
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, plain.value(seen), rtol=1e-4, atol=1e-5)


def test_the_target_network_values_in_float32() -> None:
    """The same targets in both precisions, with a single network to choose and to value."""
    policy = DqnConfig(hidden=HIDDEN, double=False)
    batch = rows(policy, OBSERVATION)
    metrics = [algorithm(policy, OBSERVATION, precision).learn(batch).metrics for precision in ("float32", "bfloat16")]
    exact, lower = (cast("torch.Tensor", of["target_q_value"]) for of in metrics)
    assert torch.equal(exact, lower)
    exact, lower = (cast("torch.Tensor", of["q_value"]) for of in metrics)
    assert not torch.equal(exact, lower)
