"""The search's model gives the network's numbers, and keeps latent states in a pool."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from remuda.policy.algorithms.muzero.acting import SearchModel
from remuda.policy.algorithms.muzero.networks import Support, normalised
from remuda.policy.networks.batch_norm import BatchNorm
from remuda.tests.policy.algorithms.muzero.networks import ATOMS, KINDS, Kind

SUPPORT = Support((ATOMS - 1) // 2)
CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_the_network_says(kind: Kind) -> None:
    network = kind.trained()
    seen = kind.seen(5)
    frozen, actions = network.frozen(SUPPORT), torch.tensor([0, 3, 1, 2, 3])
    latent = network.represent(seen)
    torch.testing.assert_close(frozen.represent(seen), latent, rtol=1e-4, atol=1e-5)
    following = network.imagine(latent, actions)
    torch.testing.assert_close(frozen.imagine(latent, actions), following, rtol=1e-4, atol=1e-5)
    said = network.predict(following)
    prior, value = frozen.predict(following)
    torch.testing.assert_close(prior, said.policy.softmax(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(value, SUPPORT.expectation(said.value), rtol=1e-4, atol=1e-5)
    reward, *again = frozen.evaluate(following)
    torch.testing.assert_close(reward, SUPPORT.expectation(network.rewards(following)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again, [prior, value], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        frozen.value(seen), SUPPORT.expectation(network.predict(latent).value), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_change_with_the_network(kind: Kind) -> None:
    network = kind.trained()
    frozen, seen = network.frozen(SUPPORT), kind.seen(5)
    before = frozen.value(seen)
    for tensor in network.state_dict().values():
        tensor.mul_(1.5)
    assert torch.equal(frozen.value(seen), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_steps_from_any_node_of_each_root(kind: Kind) -> None:
    network = kind.trained()
    model = SearchModel(network.frozen(SUPPORT), CPU)
    seen = kind.seen(5)
    prior, value = model.begin(seen.numpy(), 3)
    assert (prior.shape, str(prior.dtype), value.shape, str(value.dtype)) == ((5, 4), "float32", (5,), "float32")
    np.testing.assert_allclose(prior.sum(1), 1.0, rtol=1e-5)
    paths: list[tuple[list[int], list[int]]] = [
        ([0, 0, 0, 0, 0], [0, 1, 2, 3, 0]),
        ([0, 1, 1, 0, 1], [1, 1, 0, 2, 2]),
        ([2, 1, 0, 2, 0], [3, 2, 1, 0, 0]),
    ]
    latent = [network.represent(seen)]
    for node, (parents, actions) in enumerate(paths, start=1):
        before = torch.stack([latent[parent][root] for root, parent in enumerate(parents)])
        latent.append(network.imagine(before, torch.tensor(actions)))
        reward, prior, value = model.expand(np.array(parents, np.int32), np.array(actions), node)
        said = network.predict(latent[-1])
        np.testing.assert_allclose(reward, SUPPORT.expectation(network.rewards(latent[-1])), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(prior, said.policy.softmax(1), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(value, SUPPORT.expectation(said.value), rtol=1e-3, atol=1e-4)


# --- layers

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
