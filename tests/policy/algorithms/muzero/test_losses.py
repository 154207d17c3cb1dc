"""The loss equals plain loops, its gradient finite differences, and neither depends on padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.learning import ROUNDED, TrainingBatch, consistency, unrolled
from remuda.policy.algorithms.muzero.models import PerceptronNetwork
from remuda.policy.algorithms.muzero.networks import Consistency, MuZeroNetwork, Support
from remuda.policy.algorithms.muzero.targets import Positions
from remuda.tests.policy.algorithms.muzero.cases import SMALL, changed, muzero, two_hot

SUPPORT = Support(SMALL.support_size)
K = SMALL.unroll_steps
# A row that goes on, one cut after 2 steps, one terminated after 1, one terminated after more than is unrolled.
STEPS, TERMINATED = np.array([5, 2, 1, 4], np.int32), np.array([False, False, True, True])


def network() -> MuZeroNetwork:
    """A float64 network with random weights. Normalisation uses running moments, unlike in
    training, so that rows are independent and a plain loop gives the same."""
    torch.manual_seed(0)
    made = PerceptronNetwork(SMALL, 3, 2, trains=True).double().eval()
    for tensor in made.state_dict().values():
        tensor.uniform_(0.2, 0.9)
    for parameter in made.parameters():
        parameter.data.normal_(0.0, 0.5)
    return made


def loss_of(
    net: MuZeroNetwork, given: TrainingBatch, config: MuZeroConfig = SMALL, hidden_gradient: float = 0.5
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Loss and metrics of a learner with this network."""
    learner = muzero(config)
    learner._online, learner.hidden_gradient = net, hidden_gradient
    found = learner.loss(given)
    return found.total, dict(found.metrics)


def numbers(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.normal(size=shape))


def lesson(seed: int = 0) -> tuple[TrainingBatch, Positions]:
    rng = np.random.default_rng(seed)
    positions = Positions.of(STEPS, TERMINATED, unroll_steps=K)
    rows, count = len(STEPS), len(positions.row)
    compared = np.flatnonzero(positions.seen[rows:])
    return TrainingBatch(
        counts=positions.counts,
        observation=numbers(rng, rows, 3),
        action=torch.from_numpy(rng.integers(0, 2, count)),
        policy=torch.from_numpy(rng.dirichlet((1.0, 1.0), count)),
        value=numbers(rng, count) * 4,
        reward=numbers(rng, count - rows) * 4,
        acted=torch.from_numpy(positions.acted.astype(np.float64)),
        valued=torch.from_numpy(positions.valued.astype(np.float64)),
        weights=torch.from_numpy(rng.uniform(0.5, 1.0, rows)[positions.row]),
        compared=torch.from_numpy(compared),
        seen=numbers(rng, len(compared), 3),
    ), positions


def by_loops(
    net: MuZeroNetwork, given: TrainingBatch, positions: Positions, config: MuZeroConfig
) -> tuple[float, float]:
    """The total and the weighted total, row by row and position by position."""
    total = weighted = 0.0
    rows = given.counts[0]
    for first in range(rows):
        row, latent = positions.row[first], net.represent(given.observation[first : first + 1])
        before = int(first)
        for place in np.flatnonzero(positions.row == row):
            position = positions.position[place]
            share = (1.0 if position == 0 else 1.0 / K) / rows
            of_position = 0.0
            if position:
                latent = net.imagine(latent, given.action[before : before + 1])
                logits = net.rewards(latent)
                target = two_hot(SUPPORT, given.reward[place - rows : place - rows + 1])
                of_position += config.reward_coefficient * float(-(target * logits.log_softmax(1)).sum())
                if positions.seen[place]:
                    at = int(np.flatnonzero(given.compared.numpy() == place - rows)[0])
                    assert net.consistency is not None
                    projected = net.consistency.projection(net.represent(given.seen[at : at + 1]))[0]
                    said = net.consistency.prediction(net.consistency.projection(latent))[0]
                    cosine = float(said @ projected / (said.norm() * projected.norm()))
                    of_position -= config.consistency_coefficient * cosine
            said_policy, said_value = net.predict(latent)
            if positions.acted[place]:
                chances = said_policy.softmax(1)[0]
                of_position -= config.policy_coefficient * float(given.policy[place] @ chances.log())
                of_position += config.entropy_coefficient * float(chances @ chances.log())
            if positions.valued[place]:
                target = two_hot(SUPPORT, given.value[place : place + 1])
                of_position += config.value_coefficient * float(-(target * said_value.log_softmax(1)).sum())
            total += share * of_position
            weighted += share * float(given.weights[place]) * of_position
            before = int(place)
    return total, weighted


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        changed(
            policy_coefficient=0.3,
            value_coefficient=0.7,
            reward_coefficient=1.9,
            entropy_coefficient=0.2,
            consistency_coefficient=0.4,
        ),
    ],
)
def test_the_loss_is_that_of_plain_loops(config: MuZeroConfig) -> None:
    given, positions = lesson()
    net = network()
    weighted_total, found = loss_of(net, given, config)
    with torch.no_grad():
        total, weighted = by_loops(net, given, positions, config)
    assert float(found["total_loss"]) == pytest.approx(total, rel=1e-6)
    assert float(weighted_total.detach()) == pytest.approx(weighted, rel=1e-6)


def directional(net: MuZeroNetwork, given: TrainingBatch, factor: float) -> tuple[float, float]:
    """The slope of the weighted loss along a random direction: by autograd, and by the difference of two losses."""
    torch.manual_seed(1)
    parameters = list(net.parameters())
    direction = [torch.randn_like(parameter) for parameter in parameters]

    def loss() -> torch.Tensor:
        return loss_of(net, given, hidden_gradient=factor)[0]

    gradients = torch.autograd.grad(loss(), parameters)
    slope = sum(float((gradient * each).sum()) for gradient, each in zip(gradients, direction, strict=True))

    def at(distance: float) -> float:
        with torch.no_grad():
            for parameter, each in zip(parameters, direction, strict=True):
                parameter.add_(each, alpha=distance)
            value = float(loss())
            for parameter, each in zip(parameters, direction, strict=True):
                parameter.sub_(each, alpha=distance)
        return value

    return slope, (at(1e-6) - at(-1e-6)) / 2e-6


def test_the_gradient_by_finite_differences() -> None:
    given, _ = lesson()
    net = network()
    net.consistency = None  # its targets move with the parameters, and are to get no gradient: see the networks' tests
    slope, difference = directional(net, given, 1.0)
    assert slope == pytest.approx(difference, rel=1e-5)
    assert slope != pytest.approx(directional(net, given, 0.5)[0], rel=1e-3)


def test_a_latent_states_gradient_is_halved_at_each_step_of_the_model() -> None:
    """By the chain rule, the representation gets 0.5^K of the gradient of the last of K steps."""
    net = network()
    given, _ = lesson()

    def from_last_reward(factor: float) -> torch.Tensor:
        last = net.rewards(unrolled(net, given, factor)[-1]).logsumexp(1).sum()
        weight = next(net.representation.parameters())
        return torch.autograd.grad(last, weight)[0]

    torch.testing.assert_close(from_last_reward(0.5), 0.5**K * from_last_reward(1.0))


def test_products_in_bfloat16_give_about_the_same_loss() -> None:
    given, _ = lesson()
    single = replace(
        given,
        observation=given.observation.float(),
        policy=given.policy.float(),
        value=given.value.float(),
        reward=given.reward.float(),
        acted=given.acted.float(),
        valued=given.valued.float(),
        weights=given.weights.float(),
        seen=given.seen.float(),
    )
    net = network().float()
    _, exact = loss_of(net, single)
    total, rough = loss_of(net, single, changed(precision="bfloat16"))
    assert total.dtype == torch.float32
    assert float(rough["consistency_loss"]) == pytest.approx(float(exact["consistency_loss"]), abs=0.02)
    assert float(rough["consistency_loss"]) != float(exact["consistency_loss"])
    assert all(rough[name] == exact[name] for name in ("value_loss", "policy_loss", "reward_loss"))


class Counted(Consistency):
    """Records the numbers of positions of its calls."""

    def __init__(self) -> None:
        super().__init__(8, changed(projection_units=16, projection_bottleneck=8))
        self.sizes: set[int] = set()

    def forward(self, imagined: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        assert len(imagined) == len(seen)
        self.sizes.add(len(imagined))
        return super().forward(imagined, seen)


def test_consistency_in_bfloat16_is_computed_for_few_sizes() -> None:
    """Each size costs a compiled kernel."""
    torch.manual_seed(0)
    heads = Counted()
    for count in range(1, 3 * ROUNDED, 7):
        found = consistency(heads, torch.randn(count, 8), torch.randn(count, 8), halved=True)
        assert found.shape == (count,)
    assert heads.sizes == {ROUNDED, 2 * ROUNDED, 3 * ROUNDED}
