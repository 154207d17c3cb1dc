"""Perceptrons of one shape as one: torch's own numbers forward, autograd's backward."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.precision import Products
from remuda.policy.networks.stacked import Stack, StackedLayer, StackedPerceptron

widths = st.lists(st.integers(1, 9), min_size=2, max_size=5)


def made(count: int, sizes: list[int], seed: int = 0) -> tuple[StackedPerceptron, FlatParameters, Stack]:
    torch.manual_seed(seed)
    network = StackedPerceptron(count, sizes).double()
    parameters = FlatParameters(network)
    return network, parameters, Stack(parameters, "", Products(torch.device("cpu")))


@settings(deadline=None)
@given(count=st.integers(1, 3), sizes=widths, rows=st.integers(1, 12), seed=st.integers(0, 1000))
def test_each_is_a_perceptron_of_linear_layers_and_relu(count: int, sizes: list[int], rows: int, seed: int) -> None:
    network, _, stack = made(count, sizes, seed)
    inputs = torch.randn(rows, sizes[0], dtype=torch.float64)
    together = stack.forward(inputs)[-1]
    torch.testing.assert_close(together, network(inputs))
    for index in range(count):
        alone = inputs
        layers = [layer for layer in network if isinstance(layer, StackedLayer)]
        for place, layer in enumerate(layers):
            alone = torch.nn.functional.linear(alone, layer.weight[index].t(), layer.bias[index, 0])
            alone = alone if place == len(layers) - 1 else alone.relu()
        torch.testing.assert_close(together[index], alone)


@settings(deadline=None)
@given(
    count=st.integers(1, 3),
    sizes=widths,
    rows=st.integers(1, 12),
    unused=st.integers(0, 3),
    seed=st.integers(0, 1000),
    part=st.floats(0.1, 1.0),
)
def test_gradients_are_autograds(count: int, sizes: list[int], rows: int, unused: int, seed: int, part: float) -> None:
    """Those of the parameters from the first rows alone, those of the inputs from all that there is a slope of."""
    network, parameters, stack = made(count, sizes, seed)
    learned, first = max(1, int(part * rows)), sizes[0] // 2
    inputs = torch.randn(rows, sizes[0], dtype=torch.float64).requires_grad_()
    others = torch.randn(unused, sizes[0], dtype=torch.float64)
    slope = torch.randn(count, rows, sizes[-1], dtype=torch.float64)
    expected = torch.autograd.grad((network(inputs) * slope)[:, :learned].sum(), list(network.parameters()))
    (by_inputs,) = torch.autograd.grad((network(inputs) * slope).sum(), inputs)
    with torch.no_grad():
        parameters.gradient.fill_(7.0)  # what an earlier update has left
        by_first = stack.backward(stack.forward(torch.cat((inputs.detach(), others))), slope, learned=learned)
        torch.testing.assert_close(parameters.gradient, torch.cat([each.flatten() for each in expected]))
        torch.testing.assert_close(stack.input_gradient(by_first, first=first), by_inputs[:, first:])


def test_weights_start_within_the_bounds_of_torchs_linear_layers_and_differ() -> None:
    torch.manual_seed(0)
    network = StackedPerceptron(2, (25, 300, 1))
    first, last = (layer for layer in network if isinstance(layer, StackedLayer))
    for layer, bound in ((first, 1 / 5), (last, 1 / 300**0.5)):
        for values in (layer.weight, layer.bias):
            assert float(values.detach().abs().max()) <= bound
    # A uniform distribution over -b … b has a standard deviation of b / sqrt(3).
    assert float(first.weight.detach().std()) == pytest.approx(1 / 5 / 3**0.5, rel=0.05)
    assert not torch.equal(first.weight[0], first.weight[1])


def test_in_bfloat16_only_large_products_between_the_layers_are_rounded() -> None:
    torch.manual_seed(0)
    network = StackedPerceptron(2, (5, 128, 128, 1))
    parameters, products = FlatParameters(network), Products(torch.device("cpu"))
    stack, inputs = Stack(parameters, "", products), torch.randn(128, 5)
    slope = torch.ones(2, 128, 1)

    def computed() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        made = stack.forward(inputs)
        stack.backward(made, slope, learned=128)
        return made[1].clone(), made[-1], parameters.gradient.clone()

    with torch.no_grad():
        first, last, gradient = computed()
        before = products.lowered
        products.precision = "bfloat16"
        same, near, near_gradient = computed()
        assert (before, products.lowered) == (False, True)
        assert torch.equal(same, first), "the layer that reads observations is exact"
        torch.testing.assert_close(near, last, rtol=0.05, atol=0.01)
        assert float((near_gradient - gradient).norm()) < 0.02 * float(gradient.norm())
        products.precision = "float32"
        assert all(torch.equal(*pair) for pair in zip(computed(), (first, last, gradient), strict=True))
