"""What is promised of perceptrons that are written out: torch's outputs and autograd's gradient."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.perceptrons import Outputs, Perceptrons

Activation = Literal["tanh", "relu"]
Widths = tuple[int, ...]


class Network(nn.Module):
    """The same in torch's own modules, and a parameter that the perceptrons have nothing to do with."""

    def __init__(
        self, inputs: int, shared: Widths, heads: tuple[Widths, ...], activation: Activation, *, split: bool
    ) -> None:
        super().__init__()
        between = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]
        self.other = nn.Parameter(torch.zeros(3))
        self.shared = layers((inputs, *shared), between)
        features = (inputs, *shared)[-1] // (len(heads) if split else 1)
        self.heads = nn.ModuleList(
            nn.Sequential(*layers((features, *widths[:-1]), between), nn.Linear((features, *widths)[-2], widths[-1]))
            for widths in heads
        )
        self._split = split

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = self.shared(inputs)
        parts = features.chunk(len(self.heads), dim=1) if self._split else [features] * len(self.heads)
        return tuple(head(part) for head, part in zip(self.heads, parts, strict=True))


def layers(widths: Widths, between: type[nn.Module]) -> nn.Sequential:
    made: list[nn.Module] = []
    for index in range(len(widths) - 1):
        made += [nn.Linear(widths[index], widths[index + 1]), between()]
    return nn.Sequential(*made)


def both_ways(
    inputs: int = 4,
    shared: Widths = (6,),
    heads: tuple[Widths, ...] = ((5, 3), (1,)),
    activation: Activation = "tanh",
    *,
    split: bool = False,
    seed: int = 0,
) -> tuple[Network, FlatParameters, Perceptrons]:
    """In double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(inputs, shared, heads, activation, split=split).double()
        parameters = FlatParameters(network)
        parameters.vector.data.normal_(std=0.7)
    of_heads = [parameters.layers(f"heads.{index}.") for index in range(len(heads))]
    perceptrons = Perceptrons(parameters, activation, shared=parameters.layers("shared."), heads=of_heads, split=split)
    return network, parameters, perceptrons


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def differentiated(
    way: Network | Perceptrons, parameters: FlatParameters, inputs: torch.Tensor, slopes: list[torch.Tensor]
) -> tuple[Outputs, torch.Tensor]:
    """The outputs, and the gradient by the parameters of the sum of slopes times outputs."""
    parameters.gradient.zero_()
    if isinstance(way, Perceptrons):
        outputs, backward = way.vjp(inputs)
        way.forward(inputs * 2.0)  # what is computed in between has no influence
        backward(tuple(slopes))
    else:
        outputs = way(inputs)
        torch.autograd.backward(outputs, slopes)
    return tuple(output.detach() for output in outputs), parameters.gradient.clone()


def assert_close(got: object, expected: object) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@settings(deadline=None, derandomize=True)  # a sum that rounds to 0 would switch a unit off
@given(
    inputs=st.integers(1, 9),
    shared=st.lists(st.integers(1, 12), max_size=3).map(tuple),
    heads=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
    activation=st.sampled_from(["tanh", "relu"]),
    split=st.booleans(),
    rows=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_outputs_and_gradients_are_those_of_torchs_modules(
    inputs: int,
    shared: Widths,
    heads: tuple[Widths, ...],
    activation: Activation,
    split: bool,
    rows: int,
    seed: int,
) -> None:
    if split:  # each head reads a share
        shared = (*shared[:-1], 4 * len(heads))
    network, parameters, perceptrons = both_ways(inputs, shared, heads, activation, split=split, seed=seed)
    seen = numbers(rows, inputs, seed=seed)
    slopes = [numbers(rows, widths[-1], seed=seed + 1 + index) for index, widths in enumerate(heads)]

    got, expected = (differentiated(way, parameters, seen, slopes) for way in (perceptrons, network))
    assert_close(got, expected)
    assert_close(perceptrons.forward(seen), got[0])
    for index, output in enumerate(got[0]):
        assert_close(perceptrons.head(index, seen), output)


class AsFunction(torch.autograd.Function):
    """For gradcheck, which moves the vector that the layers read."""

    @staticmethod
    def forward(
        ctx: Any, vector: torch.Tensor, inputs: torch.Tensor, parameters: FlatParameters, perceptrons: Perceptrons
    ) -> Outputs:
        assert vector is parameters.vector
        ctx.parameters = parameters
        outputs, ctx.backward_ = perceptrons.vjp(inputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.parameters.gradient.zero_()
        ctx.backward_(gradients)
        return ctx.parameters.gradient.clone(), None, None, None


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(("shared", "split"), [((), False), ((6,), False), ((5, 8), True)])
def test_gradients_are_those_of_finite_differences(activation: Activation, shared: Widths, split: bool) -> None:
    _, parameters, perceptrons = both_ways(3, shared, ((4, 2), (1,)), activation, split=split)
    inputs = numbers(5, 3)
    call = cast("Callable[..., Outputs]", AsFunction.apply)
    assert torch.autograd.gradcheck(lambda vector: call(vector, inputs, parameters, perceptrons), parameters.vector)


def test_one_layer_by_hand() -> None:
    """Two rows by a layer of two inputs and one output: weights 2 and -1, bias 3."""
    _, parameters, perceptrons = both_ways(2, (), ((1,),))
    parameters.vector.data.copy_(torch.tensor([0.0, 0.0, 0.0, 2.0, -1.0, 3.0]))
    outputs, backward = perceptrons.vjp(torch.tensor([[1.0, 4.0], [10.0, 0.5]], dtype=torch.float64))
    assert outputs[0].tolist() == [[1.0], [22.5]]
    backward((torch.tensor([[1.0], [2.0]], dtype=torch.float64),))
    assert parameters.gradient.tolist() == [0.0, 0.0, 0.0, 1.0 + 2 * 10.0, 4.0 + 2 * 0.5, 3.0]


def test_what_was_there_before_is_replaced_but_for_what_others_write() -> None:
    _, parameters, perceptrons = both_ways()
    slopes = [numbers(7, 3), numbers(7, 1)]
    _, expected = differentiated(perceptrons, parameters, numbers(7, 4), slopes)
    parameters.gradient.fill_(7.0)
    perceptrons.vjp(numbers(7, 4))[1](tuple(slopes))
    expected[:3] = 7.0  # of the parameter that is not theirs
    assert_close(parameters.gradient, expected)


def test_parameters_that_are_loaded_are_those_that_count() -> None:
    (first, of_first, perceptrons), (second, _, _) = both_ways(seed=1), both_ways(seed=2)
    first.load_state_dict({name: tensor.clone() for name, tensor in second.state_dict().items()})
    assert_close(perceptrons.forward(numbers(5, 4)), tuple(part.detach() for part in second(numbers(5, 4))))
    of_first.vector.data.zero_()
    assert not perceptrons.forward(numbers(5, 4))[0].any()


def test_outputs_stay_what_they_were_when_the_parameters_move() -> None:
    _, parameters, perceptrons = both_ways()
    outputs, _ = perceptrons.vjp(numbers(5, 4))
    before = [output.clone() for output in outputs]
    parameters.vector.data.add_(1.0)
    assert all(torch.equal(output, kept) for output, kept in zip(outputs, before, strict=True))
    assert not any(output.requires_grad for output in outputs)


def test_same_inputs_give_identical_bits() -> None:
    _, parameters, perceptrons = both_ways(shared=(64, 64))
    slopes = [numbers(256, 3), numbers(256, 1)]
    (_, first), (_, second) = (differentiated(perceptrons, parameters, numbers(256, 4), slopes) for _ in range(2))
    assert torch.equal(first, second)
