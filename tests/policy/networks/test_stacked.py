"""Perceptrons of one shape, stacked: torch's outputs and autograd's gradients."""

from __future__ import annotations

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.precision import Products
from remuda.policy.networks.stacked import StackedLayer, StackedPerceptron

widths = st.lists(st.integers(1, 9), min_size=2, max_size=5)


def made(count: int, sizes: list[int], seed: int = 0) -> StackedPerceptron:
    torch.manual_seed(seed)
    return StackedPerceptron(count, sizes).double()


@settings(deadline=None)
@given(count=st.integers(1, 3), sizes=widths, rows=st.integers(1, 12), seed=st.integers(0, 1000))
def test_each_is_a_perceptron_of_linear_layers_and_relu(count: int, sizes: list[int], rows: int, seed: int) -> None:
    network = made(count, sizes, seed)
    inputs = torch.randn(rows, sizes[0], dtype=torch.float64)
    together = network(inputs)
    with torch.no_grad():
        torch.testing.assert_close(network(inputs), together)
    for index in range(count):
        alone = inputs
        layers = [layer for layer in network if isinstance(layer, StackedLayer)]
        for place, layer in enumerate(layers):
            alone = torch.nn.functional.linear(alone, layer.weight[index].t(), layer.bias[index, 0])
            alone = alone if place == len(layers) - 1 else alone.relu()
        torch.testing.assert_close(together[index], alone)


@settings(deadline=None)
@given(count=st.integers(1, 3), sizes=widths, rows=st.integers(1, 12), flat=st.booleans(), seed=st.integers(0, 1000))
def test_gradients_are_those_of_single_layers(count: int, sizes: list[int], rows: int, flat: bool, seed: int) -> None:
    """Gradients of a loss that uses the network twice, by the inputs and all parameters, which may be one vector."""
    network = made(count, sizes, seed)
    plain = copy.deepcopy(network).eval()
    inputs, others = (torch.randn(rows, sizes[0], dtype=torch.float64, requires_grad=True) for _ in range(2))
    slope = torch.randn(count, rows, sizes[-1], dtype=torch.float64)

    def loss(of: StackedPerceptron) -> torch.Tensor:
        total: torch.Tensor = (of(inputs) * slope).sum() + of(others).square().sum()
        return total

    parameters = FlatParameters(network) if flat else None
    expected = torch.autograd.grad(loss(plain), [inputs, *plain.parameters()])
    if parameters is None:
        torch.testing.assert_close(torch.autograd.grad(loss(network), [inputs, *network.parameters()]), expected)
        return
    for _ in range(2):  # memory of the first gradients is used again
        parameters.backward(loss(network))
        torch.testing.assert_close(parameters.gradient, torch.cat([each.flatten() for each in expected[1:]]))
    with parameters.part("").constant():
        through = loss(network)
    torch.testing.assert_close(torch.autograd.grad(through, inputs, retain_graph=True)[0], expected[0])
    parameters.backward(through)
    assert not parameters.gradient.any()


def test_in_bfloat16_only_large_products_between_the_layers_are_rounded() -> None:
    torch.manual_seed(0)
    network = StackedPerceptron(2, (5, 128, 128, 1))
    parameters, products = FlatParameters(network), Products(torch.device("cpu"))
    products.reach(network)
    outer = StackedPerceptron(2, (5, 128, 1))  # a layer that reads observations, and a last one
    products.reach(outer)
    inputs = torch.randn(128, 5)

    def computed() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        outputs = network(inputs)
        parameters.backward(outputs.sum())
        return outer(inputs).detach(), outputs.detach(), parameters.gradient.clone()

    exact, values, gradient = computed()
    before = products.lowered
    products.precision = "bfloat16"
    same, near, near_gradient = computed()
    assert (before, products.lowered) == (False, True)
    assert torch.equal(same, exact)
    torch.testing.assert_close(near, values, rtol=0.05, atol=0.01)
    assert not torch.equal(near, values)
    assert float((near_gradient - gradient).norm()) < 0.02 * float(gradient.norm())
    products.precision = "float32"
    assert all(torch.equal(*pair) for pair in zip(computed(), (exact, values, gradient), strict=True))
