"""What is promised of values and gradients that are written out: autograd's; and when which is used."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.learning import LearnerConfig
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.algorithms.dqn.q_values import ModuleQValues, PerceptronQValues, QValues, q_values
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.images import ImageLayout
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.algorithms.segments import numbers
from remuda.tests.policy.cases import config

HIDDEN = st.lists(st.integers(1, 24), min_size=1, max_size=4).map(tuple)
TOLERANCE = 1e-5
Way = Callable[[QNetwork, FlatParameters], QValues]


def network(features: int, actions: int, hidden: tuple[int, ...], *, dueling: bool) -> tuple[QNetwork, FlatParameters]:
    made = QNetwork(features, actions, hidden, dueling=dueling)
    return made, FlatParameters(made)


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """To 1e-5 of the largest."""
    scale = max(1.0, float(expected.abs().max()))
    np.testing.assert_allclose(got.numpy() / scale, expected.numpy() / scale, rtol=0.0, atol=TOLERANCE)


@settings(deadline=None, derandomize=True)  # a sum that rounds to 0 on one side alone would switch a unit off
@given(
    features=st.integers(1, 9),
    actions=st.integers(1, 6),
    hidden=HIDDEN,
    dueling=st.booleans(),
    rows=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
)
def test_values_and_gradient_are_those_of_autograd(
    features: int, actions: int, hidden: tuple[int, ...], dueling: bool, rows: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made, parameters = network(features, actions, hidden, dueling=dueling)
    observations = torch.randn(rows, features, generator=generator)
    of_values = torch.randn(rows, actions, generator=generator)

    def differentiated(way: QValues) -> tuple[torch.Tensor, torch.Tensor]:
        parameters.gradient.fill_(np.nan)  # nothing of it may be left
        values, backward = way.vjp(observations)
        way(observations * 2.0)  # what is valued in between has no influence
        backward(of_values.clone())
        assert not values.requires_grad
        assert_close(way(observations), values)
        return values, parameters.gradient.clone()

    ways = q_values(made, parameters), ModuleQValues(made, parameters)
    for got, expected in zip(*map(differentiated, ways), strict=True):
        assert_close(got, expected)


@settings(deadline=None, derandomize=True)
@given(
    hidden=HIDDEN,
    dueling=st.booleans(),
    double=st.booleans(),
    max_grad_norm=st.sampled_from([None, 0.05]),
    observation=st.sampled_from([ObservationSpec((4,), "float32"), ObservationSpec((2, 3), "float64")]),
    action=st.sampled_from([ActionSpec(1), ActionSpec(3, start=-1)]),
    rows=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_an_update_is_that_of_autograd(
    hidden: tuple[int, ...],
    dueling: bool,
    double: bool,
    max_grad_norm: float | None,
    observation: ObservationSpec,
    action: ActionSpec,
    rows: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    assert action.n is not None
    batch = {
        "obs": rng.normal(size=(rows, *observation.shape)).astype(observation.dtype),
        "next_obs": rng.normal(size=(rows, *observation.shape)).astype(observation.dtype),
        "action": rng.integers(action.start, action.start + action.n, rows),
        "reward": (3.0 * rng.normal(size=rows)).astype(np.float32),
        "discount": (0.9 * rng.integers(0, 2, rows)).astype(np.float32),
        "weights": rng.random(rows).astype(np.float32),
    }
    settings_of_both = config(
        DqnConfig(hidden=hidden, dueling=dueling, double=double), LearnerConfig(max_grad_norm=max_grad_norm)
    )

    def update(values: Way) -> tuple[torch.Tensor, dict[str, float], torch.Tensor]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("remuda.policy.algorithms.dqn.learning.q_values", values)
            algorithm = Dqn(settings_of_both, observation, action, seed % 1000)
        result = algorithm.learn(batch)
        assert result.priorities is not None
        optimizer = cast("dict[str, torch.Tensor]", algorithm.state()["optimizer"])
        gradient = optimizer["exp_avg"] * 10.0  # one step: a tenth of the gradient
        return gradient, numbers(result.metrics), result.priorities

    by_hand, by_autograd = update(q_values), update(ModuleQValues)
    assert_close(by_hand[0], by_autograd[0])
    assert by_hand[1] == pytest.approx(by_autograd[1], rel=TOLERANCE, abs=TOLERANCE)
    assert_close(by_hand[2], by_autograd[2])


def test_parameters_that_are_loaded_are_those_that_count() -> None:
    (first, of_first), (second, _) = (network(4, 2, (8, 6), dueling=True) for _ in range(2))
    values = q_values(first, of_first)
    first.load_state_dict(copy.deepcopy(second.state_dict()))
    observations = torch.randn(5, 4)
    with torch.no_grad():
        assert_close(values(observations), second(observations))


@pytest.mark.parametrize("way", [q_values, ModuleQValues])
def test_values_to_learn_stay_what_they_were_when_the_parameters_move(way: Way) -> None:
    made, parameters = network(4, 2, (8,), dueling=False)
    learnt, _ = way(made, parameters).vjp(torch.randn(5, 4))
    before = learnt.clone()
    parameters.vector.data.add_(1.0)
    assert torch.equal(learnt, before)
    assert not learnt.requires_grad


def test_convolutions_keep_autograd() -> None:
    observation = ObservationSpec((84, 84, 4), "uint8", low=0.0, high=255.0)
    image = ImageLayout.of(observation, DqnConfig().convolution)
    assert image is not None
    made = QNetwork(0, 2, (16,), dueling=True, image=image)
    assert isinstance(q_values(made, FlatParameters(made)), ModuleQValues)
    perceptron, parameters = network(4, 2, (8,), dueling=False)
    assert isinstance(q_values(perceptron, parameters), PerceptronQValues)
