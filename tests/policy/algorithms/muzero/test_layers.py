"""Layers: batch normalisation equals torch's, alone or in another layer, and latent states are scaled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from remuda.policy.algorithms.muzero.networks import BatchNorm, normalised

IMAGES = (7, 3, 4, 2)


@pytest.mark.parametrize("shape", [(7, 3), IMAGES])
def test_batch_normalisation_is_torchs_own(shape: tuple[int, ...]) -> None:
    ours, theirs = BatchNorm(3), nn.BatchNorm1d(3) if len(shape) == 2 else nn.BatchNorm2d(3)
    for _ in range(3):
        batch = torch.randn(shape) * 4 + 2
        torch.testing.assert_close(ours(batch), theirs(batch))
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(batch), theirs.eval()(batch))


def test_a_batch_of_one_row_is_normalised_by_what_was_seen_before() -> None:
    norm = BatchNorm(3)
    before = norm.running_mean.clone()
    torch.testing.assert_close(norm(torch.ones(1, 3)), norm.eval()(torch.ones(1, 3)))
    assert torch.equal(norm.running_mean, before)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_latent_states_are_normalised_each_by_itself(scale: float) -> None:
    rows = scale * torch.randn(4, 64, dtype=torch.float64)
    by_hand = (rows - rows.mean(1, keepdim=True)) / (rows.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(normalised(rows), by_hand)


def test_latent_states_that_are_images_are_normalised_over_all_their_numbers() -> None:
    images = torch.randn(IMAGES, dtype=torch.float64)
    torch.testing.assert_close(normalised(images), normalised(images.flatten(1)).view(IMAGES))


@pytest.mark.parametrize("layer", [nn.Linear(3, 3), nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 1, bias=False)])
def test_normalisation_becomes_part_of_the_layer_before_it(layer: nn.Linear | nn.Conv2d) -> None:
    norm = BatchNorm(3).eval()
    for tensor in norm.state_dict().values():
        tensor.uniform_(0.5, 2.0)
    seen = torch.randn((7, 3) if isinstance(layer, nn.Linear) else (7, 3, 5, 4))
    expected = norm(layer(seen))
    kept = layer.weight.detach().clone()
    weight, bias = norm.folded_into(layer.weight, layer.bias)
    assert torch.equal(layer.weight, kept), "they are copies"
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    torch.testing.assert_close(layer(seen), expected, rtol=1e-4, atol=1e-5)
