"""Hyperspherical perceptrons: the numbers of the paper's formulas in numpy, by torch and by the acting program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from remuda.policy.networks.compiled import compiled
from remuda.policy.networks.hyperspherical import (
    Interpolation,
    Scale,
    UnitLinear,
    UnitWeights,
    hyperspherical_perceptron,
)
from remuda.policy.networks.reading import Names, steps_of
from remuda.policy.spaces import ObservationSpec

SEEN = np.random.default_rng(0).normal(0.0, 3.0, (7, 3)).astype(np.float32)


def made(*, unit_outputs: bool = True) -> nn.Sequential:
    """Two blocks of width 5, with parameters off their first values and weights of length 1."""
    torch.manual_seed(0)
    network = hyperspherical_perceptron((3, 5, 5, 2), unit_outputs=unit_outputs)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    UnitWeights(network).normalise()
    return network


def on_sphere(rows: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def test_outputs_are_those_of_the_formulas() -> None:
    network = made()
    arrays = {name: tensor.numpy().astype(np.float64) for name, tensor in network.state_dict().items()}
    w = list(arrays.values())
    x = on_sphere(np.concatenate((SEEN, np.full((7, 1), 3.0)), axis=1).astype(np.float64))
    x = on_sphere((x @ w[0].T) * w[1])
    for up, scale, down, share in (w[2:6], w[6:10]):
        inner = on_sphere(np.maximum((x @ up.T) * scale, 0.0) @ down.T)
        x = on_sphere(x + share * np.sqrt(5) / 3 * (inner - x))
    expected = ((x @ w[10].T) * w[11]) @ w[12].T + w[13]
    np.testing.assert_allclose(network(torch.from_numpy(SEEN)).detach(), expected, atol=1e-5)
    steps = steps_of(network, Names(network))
    assert steps is not None
    own = {name: array.astype(np.float32) for name, array in arrays.items()}
    acted = compiled(steps, own, ObservationSpec((3,), "float32"))(SEEN)
    assert acted.dtype == np.float32
    np.testing.assert_allclose(acted, expected, atol=1e-5)


def test_first_shares_and_scales_are_those_of_the_paper() -> None:
    network = hyperspherical_perceptron((3, 8, 8, 2), unit_outputs=True)
    features = torch.randn(4, 8)
    scales = [part for part in network if isinstance(part, Scale)]
    assert len(scales) == 2
    for scale in scales:
        torch.testing.assert_close(scale(features), features * (2 / 8) ** 0.5)
    blocks = [part for part in network if isinstance(part, Interpolation)]
    assert len(blocks) == 2
    for block in blocks:
        inner = block.inner.get_submodule("1")
        torch.testing.assert_close(inner(torch.ones(1, 32)), torch.full((1, 32), (2 / 32) ** 0.5))
        torch.testing.assert_close(block.share(features), features / 3)
        torch.testing.assert_close(block.share.weight.detach(), torch.full((8,), 8**-0.5))


@pytest.mark.parametrize("unit_outputs", [False, True])
def test_weights_begin_with_length_1_and_return_to_length_1(unit_outputs: bool) -> None:
    network = hyperspherical_perceptron((3, 5, 2), unit_outputs=unit_outputs)
    layers = [part for part in network.modules() if isinstance(part, nn.Linear)]
    unit, free = layers[:-1] + layers[-1:] * unit_outputs, layers[-1:] * (not unit_outputs)
    assert [isinstance(layer, UnitLinear) for layer in layers] == [layer in unit for layer in layers]
    for _ in range(2):
        for layer in unit:
            torch.testing.assert_close(layer.weight.detach().norm(dim=1), torch.ones(layer.out_features))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(3.0)
        before = [layer.weight.detach().clone() for layer in free]
        UnitWeights(network).normalise()
        assert all(torch.equal(layer.weight, kept) for layer, kept in zip(free, before, strict=True))


def test_every_parameter_has_a_gradient_also_where_all_inner_units_are_silent() -> None:
    network = made(unit_outputs=False)
    inputs = torch.from_numpy(SEEN)
    network(inputs).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in network.parameters())
    with torch.no_grad():
        network.get_parameter("5.inner.1.weight").zero_()
    network.zero_grad()
    network(inputs).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in network.parameters())
