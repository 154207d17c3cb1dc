"""Analysis metrics by hand; computing them does not change the network."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from remuda.policy.algorithms.muzero.learning import ANALYSIS, analysis, dormant_ratio
from remuda.policy.algorithms.muzero.networks import BatchNorm
from remuda.tests.policy.algorithms.muzero.networks import KINDS, Kind


def test_dormant_units_by_hand() -> None:
    layer = torch.tensor([[4.0, 0.0, -0.06], [4.0, 0.0, 0.04]])  # sizes 4, 0 and 0.05; 0.025 of their mean is 0.034
    assert float(dormant_ratio([layer])) == pytest.approx(1 / 3)
    assert float(dormant_ratio([0.001 * layer])) == pytest.approx(1 / 3), "it is relative to the layer"
    images = torch.zeros(2, 2, 5, 5)
    images[0, 0, 3, 2], images[1, 1] = 1.0, 0.5  # means 0.02 and 0.25
    assert float(dormant_ratio([images])) == 0.0
    images[0, 0, 3, 2] = 0.15  # a mean of 0.003, where 0.025 of the layer's is 0.0032
    assert float(dormant_ratio([images])) == 0.5
    assert float(dormant_ratio([layer, images])) == pytest.approx(2 / 5)
    assert float(dormant_ratio([torch.zeros(3, 4)])) == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_units_that_are_switched_off_are_found(kind: Kind) -> None:
    network, actions = kind.trained().train(), torch.tensor([0, 1, 2, 3, 1])
    before = analysis(network, kind.seen(5), actions)
    assert tuple(before) == ANALYSIS
    assert float(before[ANALYSIS[2]]) == pytest.approx(math.sqrt(math.prod(kind.latent)), rel=1e-3)
    with_bias = [module for module in network.representation.modules() if isinstance(module, BatchNorm | nn.Linear)]
    with_bias[0].bias.data[0] = -1e6  # the unit is far below what relu lets through, whatever comes in
    after = analysis(network, kind.seen(5), actions)
    assert float(after[ANALYSIS[0]]) > float(before[ANALYSIS[0]])


@pytest.mark.parametrize("kind", KINDS)
def test_it_leaves_no_trace(kind: Kind) -> None:
    network = kind.trained().train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    analysis(network, kind.seen(5), torch.zeros(5, dtype=torch.int64))
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())
