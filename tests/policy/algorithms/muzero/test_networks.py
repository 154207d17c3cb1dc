"""Both kinds of networks: shapes, initial outputs, depth of a search, and batch normalisation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from remuda.policy.algorithms.muzero.networks import MuZeroNetwork
from remuda.tests.policy.algorithms.muzero.networks import KINDS, Kind

PROJECTION = (12, 5)

pytestmark = pytest.mark.parametrize("kind", KINDS)


def network(kind: Kind) -> MuZeroNetwork:
    torch.manual_seed(0)
    return kind.network(PROJECTION)


def test_a_loss_reaches_every_weight(kind: Kind) -> None:
    model = network(kind)
    for parameter in model.parameters():
        if not parameter.data.any():
            nn.init.normal_(parameter)  # heads that begin at zero pass nothing on
    seen = model.represent(kind.seen(5))
    imagined = model.imagine(seen, torch.tensor([0, 1, 2, 3, 1]))
    said = model.predict(imagined)
    assert model.consistency is not None
    losses = (said.policy, said.value, model.rewards(imagined), model.consistency(imagined, seen))
    torch.autograd.backward(torch.stack([loss.square().mean() for loss in losses]).sum())
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if name.endswith("weight")}
    assert [name for name, grad in gradients.items() if grad is None or not grad.any()] == []
