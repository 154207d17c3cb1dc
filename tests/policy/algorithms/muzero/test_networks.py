"""MuZero's networks: shapes, their beginning, and batch normalisation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from remuda.policy.algorithms.muzero.networks import BatchNorm, MuZeroNetwork, NetworkShape, normalised
from remuda.policy.networks.images import ImageLayout
from remuda.policy.spaces import ObservationSpec

SHAPE = NetworkShape(4, 3, (16,), 8, 6, 11, projection=(12, 5))


def network(shape: NetworkShape = SHAPE) -> MuZeroNetwork:
    torch.manual_seed(0)
    return MuZeroNetwork(shape)


def test_shapes() -> None:
    model = network()
    latent = model.represent(torch.randn(5, 4))
    following = model.imagine(latent, torch.tensor([0, 1, 2, 0, 1]))
    said = model.predict(following)
    assert (latent.shape, following.shape) == ((5, 8), (5, 8))
    assert (said.policy.shape, said.value.shape, model.rewards(following).shape) == ((5, 3), (5, 11), (5, 11))
    assert model.consistency is not None
    assert model.consistency(following, latent).shape == (5,)


def test_images_come_in_by_convolutions() -> None:
    image = ImageLayout.of(ObservationSpec((10, 10, 4), "bool"), None)
    model = network(NetworkShape(400, 3, (16,), 8, 6, 11, image=image))
    assert model.represent(torch.zeros(2, 10, 10, 4, dtype=torch.bool)).shape == (2, 8)
    assert model.consistency is None


def test_it_begins_with_an_even_policy_and_no_value() -> None:
    model = network()
    latent = model.represent(torch.randn(5, 4))
    said = model.predict(latent)
    assert not any(logits.abs().max() for logits in (said.policy, said.value, model.rewards(latent)))


def test_latent_states_have_one_scale_however_deep_the_search() -> None:
    model = network().eval()
    latent = model.represent(100.0 * torch.randn(5, 4))
    for _ in range(50):
        latent = model.imagine(latent, torch.zeros(5, dtype=torch.int64))
    np.testing.assert_allclose(latent.mean(1).detach().numpy(), 0.0, atol=1e-5)
    np.testing.assert_allclose(latent.var(1, unbiased=False).detach().numpy(), 1.0, atol=1e-3)


def test_what_is_seen_gets_no_gradient() -> None:
    model = network()
    imagined, seen = (torch.randn(5, 8, requires_grad=True) for _ in range(2))
    assert model.consistency is not None
    model.consistency(imagined, seen).sum().backward()
    assert imagined.grad is not None
    assert imagined.grad.abs().max() > 0
    assert seen.grad is None


def test_batch_normalisation_is_torchs_own() -> None:
    ours, theirs = BatchNorm(3), nn.BatchNorm1d(3)
    for _ in range(3):
        batch = torch.randn(7, 3) * 4 + 2
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
