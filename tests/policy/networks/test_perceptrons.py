"""Perceptrons as one node of autograd's graph have the outputs and gradients of torch's modules."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.one_node import Outputs
from remuda.policy.networks.perceptrons import Perceptrons, dueling_values
from remuda.policy.torch_distributions import Categorical

Activation = Literal["tanh", "relu"]
Widths = tuple[int, ...]
How = Literal["all", "alike", "value", "split", "dueling"]
HEADS: dict[How, tuple[Widths, ...]] = {
    "all": ((5, 3), (1,)),
    "alike": ((20, 5, 3), (20, 5, 1), (20, 4, 2)),
    "value": ((20, 2), (20, 1)),
    "split": ((4,), (2, 2), (1,)),
    "dueling": ((1,), (4,)),
}
SPLIT = ("split", "dueling")


class Network(nn.Module):
    """Perceptrons of torch's modules, between unrelated parameters."""

    def __init__(
        self, inputs: int, shared: Widths, heads: tuple[Widths, ...], activation: Activation, how: How
    ) -> None:
        super().__init__()
        between = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]
        self.other = nn.Parameter(torch.zeros(3))
        self.shared = layers((inputs, *shared), between)
        self._split, self._dueling = how in SPLIT, how == "dueling"
        features = (inputs, *shared)[-1] // (len(heads) if self._split else 1)
        self.heads = nn.ModuleList(
            nn.Sequential(*layers((features, *widths[:-1]), between), nn.Linear((features, *widths)[-2], widths[-1]))
            for widths in heads
        )
        self.last = nn.Parameter(torch.zeros(2))
        self._value = how == "value"
        made = Perceptrons.of(
            list(self.heads), (self.shared,), split=self._split, dueling=self._dueling, value_last=self._value
        )
        assert made is not None
        self.fused = made

    def forward(self, inputs: torch.Tensor) -> Outputs:
        features = self.shared(inputs)
        parts = features.chunk(len(self.heads), dim=1) if self._split else [features] * len(self.heads)
        outputs = [head(part) for head, part in zip(self.heads, parts, strict=True)]
        if self._value:
            outputs[-1] = outputs[-1].squeeze(1)
        return (dueling_values(*outputs),) if self._dueling else tuple(outputs)


def layers(widths: Widths, between: type[nn.Module]) -> nn.Sequential:
    made: list[nn.Module] = []
    for index in range(len(widths) - 1):
        made += [nn.Linear(widths[index], widths[index + 1]), between()]
    return nn.Sequential(*made)


def network(
    shared: Widths = (12,), how: How = "all", activation: Activation = "tanh", *, inputs: int = 4, seed: int = 0
) -> Network:
    """In double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(inputs, shared, HEADS[how], activation, how).double()


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loss(outputs: Outputs) -> torch.Tensor:
    """Any loss of the outputs."""
    return sum((output.sin() * numbers(*output.shape, seed=7)).sum() for output in outputs) + torch.zeros(())


def gradients(outputs: Outputs, made: nn.Module, inputs: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss(outputs), [inputs, *made.parameters()], materialize_grads=True))


def assert_close(got: object, expected: object) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


shapes = {
    "shared": st.lists(st.integers(1, 12), max_size=3).map(tuple),
    "how": st.sampled_from(list(HEADS)),
    "activation": st.sampled_from(["tanh", "relu"]),
    "rows": st.integers(1, 40),
    "seed": st.integers(0, 2**32 - 1),
}


@settings(deadline=None, derandomize=True)  # a sum that rounds to 0 would switch a unit off
@given(**shapes)
def test_it_equals_torchs_modules(shared: Widths, how: How, activation: Activation, rows: int, seed: int) -> None:
    inputs = 12
    shared = shared if how not in SPLIT or not shared else (*shared[:-1], 12)  # each head reads a share
    made = network(shared, how, activation, inputs=inputs, seed=seed)
    seen = numbers(rows, inputs, seed=seed).requires_grad_()
    expected, got = made(seen), made.fused(seen)
    assert_close(got, expected)
    assert_close(gradients(made.fused(seen), made, seen), gradients(made(seen), made, seen))

    with torch.no_grad():
        assert_close(made.fused(seen), expected)
        if how != "dueling":
            alone = [made.fused.head(index, seen) for index in range(len(expected))]
            assert_close(alone, [each.reshape(rows, -1) for each in expected])

    parameters = FlatParameters(made)  # then they are one leaf of the graph
    by_modules = torch.cat([part.reshape(-1) for part in gradients(made(seen), made, seen)[1:]])
    parameters.gradient.fill_(torch.nan)
    parameters.backward(loss(made.fused(seen)))
    assert_close(parameters.gradient, by_modules)
    (by_inputs,) = torch.autograd.grad(loss(made.fused(seen)), seen)
    assert_close(by_inputs, gradients(made(seen), made, seen)[0])


@pytest.mark.parametrize("how", list(HEADS))
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_gradients_are_those_of_finite_differences(activation: Activation, how: How) -> None:
    made = network(how=how, activation=activation)

    def outputs(inputs: torch.Tensor, *_: torch.Tensor) -> Outputs:
        return made.fused(inputs)

    assert torch.autograd.gradcheck(outputs, (numbers(5, 4).requires_grad_(), *made.fused.parameters))


def test_a_loss_may_use_a_network_twice_its_layers_alone_and_other_parameters() -> None:
    made = network()
    parameters = FlatParameters(made)
    one, two = numbers(6, 4), numbers(3, 4, seed=2)
    for _ in range(2):  # the memory of the first gradient is used again
        parameters.backward(loss(made.fused(one)) + loss(made.fused(two)) + made.shared(two).sum() + made.last.sum())
    got = parameters.gradient.clone()
    parameters.backward(loss(made(one)) + loss(made(two)) + made.shared(two).sum() + made.last.sum())
    assert_close(got, parameters.gradient)


def test_a_second_derivative_is_refused_rather_than_wrong() -> None:
    network = Network(3, (4,), HEADS["all"], "tanh", "all")
    inputs = torch.randn(5, 3, requires_grad=True)
    policy, _ = network.fused(inputs)
    likelihood, _ = Categorical(policy).of(torch.zeros(5, dtype=torch.int64))
    for outputs in (policy, likelihood):
        with pytest.raises(RuntimeError, match="no second derivatives"):
            torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
