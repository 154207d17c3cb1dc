"""The search's model gives the network's numbers, and keeps latent states in a pool."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from remuda.policy.algorithms.muzero.acting import SearchModel
from remuda.policy.algorithms.muzero.networks import Support
from remuda.tests.policy.algorithms.muzero.networks import ATOMS, KINDS, VECTORS, Kind

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


def test_another_number_of_roots_takes_another_pool() -> None:
    model = SearchModel(VECTORS.trained().frozen(SUPPORT), CPU)
    for n in (5, 2, 7):
        model.begin(VECTORS.seen(n).numpy(), 2)
        reward, _, _ = model.expand(np.zeros(n, np.int32), np.zeros(n, np.int64), 1)
        assert reward.shape == (n,)
