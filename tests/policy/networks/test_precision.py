"""Products in bfloat16: close to float32, only for large products, and without other changes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from remuda.policy.networks.layouts import Convolution, ImageLayout, Pixels
from remuda.policy.networks.one_node import Outputs
from remuda.policy.networks.perceptrons import Perceptrons
from remuda.policy.networks.precision import LEAST_MULTIPLICATIONS, Hardware, Lowering, Products, lowering, rounding
from remuda.policy.networks.trunks import ConvolutionTrunk

CPU = torch.device("cpu")
ROWS, WIDTH = 512, 64
TOLERANCE = 2.0**-7
"""bfloat16 has 8 bits: each number has a relative error of at most 2^-9, and errors of two layers add up."""
OF_GRADIENTS = 0.06
"""Some relu units with an input near 0 are on in one precision and off in the other."""


OWN = lowering(CPU)
WAYS = sorted({OWN, Lowering.COPIED, Lowering.ROUNDED}, key=lambda way: way.value)
"""The lowering of this processor, and those of every processor."""


def lower(way: Lowering = OWN) -> Products:
    products = Products(CPU)
    products.precision = "bfloat16"
    products.lowering = way
    return products


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network(widths: tuple[int, ...], activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A network with orthogonal weights: numbers keep their size."""
    made: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for pair in itertools.pairwise(widths):
            layer = nn.Linear(*pair)
            nn.init.orthogonal_(layer.weight, 1.4)
            made += [layer, activation()]
    return nn.Sequential(*made[:-1])


def differentiated(perceptrons: Perceptrons, inputs: torch.Tensor) -> tuple[Outputs, torch.Tensor]:
    """Outputs, and a gradient of all parameters."""
    outputs = perceptrons(inputs)
    loss = sum((output * numbers(*output.shape, seed=2)).sum() for output in outputs) + torch.zeros(())
    parts = torch.autograd.grad(loss / len(inputs), perceptrons.parameters)
    return outputs, torch.cat([part.reshape(-1) for part in parts])


def learned(
    widths: tuple[int, ...],
    products: Products | None,
    *,
    rows: int = ROWS,
    activation: type[nn.Module] = nn.ReLU,
    shared: int = 0,
) -> tuple[Outputs, torch.Tensor]:
    """Outputs and gradient of one head, of which the first `shared` layers are shared."""
    made = network(widths, activation)
    perceptrons = Perceptrons.of([made[2 * shared :]], (made[: 2 * shared],))
    assert perceptrons is not None
    perceptrons.products = products
    return differentiated(perceptrons, numbers(rows, widths[0]))


def apart(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The norm of the difference, relative."""
    return float((got.detach() - expected.detach()).norm() / expected.detach().norm())


def test_only_large_products_are_lowered() -> None:
    small, large = lower(), lower()
    assert not small.lowers(64, 128, 128)
    assert large.lowers(65, 128, 128)
    assert (small.lowered, large.lowered) == (False, True)
    assert LEAST_MULTIPLICATIONS == 64 * 128 * 128
    assert not Products(CPU).lowers(4096, 1024, 1024)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("shared", [0, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_outputs_and_gradient_are_close_to_float32(activation: type[nn.Module], shared: int, way: Lowering) -> None:
    products, widths = lower(way), (4, WIDTH, WIDTH, WIDTH, 3)
    (got, gradient), (expected, exact) = (
        learned(widths, way, activation=activation, shared=shared) for way in (products, None)
    )
    assert products.lowered
    assert got[0].dtype == gradient.dtype == torch.float32
    assert 0.0 < apart(got[0], expected[0]) < TOLERANCE
    assert 0.0 < apart(gradient, exact) < OF_GRADIENTS


@pytest.mark.parametrize(
    ("widths", "rows"),
    [((WIDTH, WIDTH), 4096), ((WIDTH, WIDTH, WIDTH), 4096), ((4, WIDTH, WIDTH, 2), LEAST_MULTIPLICATIONS // WIDTH**2)],
    ids=["one layer", "first and last", "small"],
)
def test_the_first_the_last_and_small_layers_stay_exact(widths: tuple[int, ...], rows: int) -> None:
    products = lower()
    (got, gradient), (expected, exact) = (learned(widths, way, rows=rows) for way in (products, None))
    assert torch.equal(got[0], expected[0])
    assert torch.equal(gradient, exact)
    assert not products.lowered


@pytest.mark.parametrize(
    ("has", "rounds", "found"),
    [
        (Hardware.NOTHING, False, Lowering.ROUNDED),
        (Hardware.INSTRUCTIONS, False, Lowering.COPIED),
        (Hardware.INSTRUCTIONS, True, Lowering.READ),
        (Hardware.FASTER, False, Lowering.COPIED),
        (Hardware.FASTER, True, Lowering.READ),
    ],
)
def test_a_processor_copies_only_what_onednn_does_not_round(
    has: Hardware, found: Lowering, monkeypatch: pytest.MonkeyPatch, *, rounds: bool
) -> None:
    monkeypatch.setattr("remuda.policy.networks.precision.onednn_rounds", lambda: rounds)
    monkeypatch.setattr("remuda.policy.networks.precision.hardware", lambda device: has)
    assert lowering(CPU) is found
    assert lowering(torch.device("cuda")) is Lowering.COPIED


# --- modules
@pytest.mark.parametrize("way", ["float32", "bfloat16"])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool])
def test_convolutions_learn_what_they_read(way: str, *, channels_last: bool, dtype: torch.dtype) -> None:
    """Learning's path differs from acting's: its outputs and gradient equal those of the plain layers."""
    high = 255.0 if dtype == torch.uint8 else 1.0
    pixels = Pixels(3, 12, 10, channels_last, 1.0 / high)
    layout = ImageLayout(pixels, (Convolution(3, 8, 4, 2), Convolution(8, 16, 3, 1)), 16 * 3 * 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        trunk = ConvolutionTrunk(layout)
    drawn = torch.randint(0, int(high) + 1, (7, 12, 10, 3), generator=torch.Generator().manual_seed(1)).to(dtype)
    images = drawn if channels_last else drawn.permute(0, 3, 1, 2).contiguous()
    plain = images.float().permute(0, 3, 1, 2) if channels_last else images.float()
    expected = nn.Sequential(*trunk)(plain / high).flatten(1)
    slopes = numbers(*expected.shape, seed=2)
    exact = torch.autograd.grad(expected, list(trunk.parameters()), slopes)

    products = Products(CPU)
    products.precision = "bfloat16" if way == "bfloat16" else "float32"
    with products.of_modules():
        got = trunk(images)
        with torch.no_grad():
            valued = trunk(images)
    found = torch.autograd.grad(got, list(trunk.parameters()), slopes.to(got.dtype))
    tolerance = 1e-5 if way == "float32" else TOLERANCE
    assert got.dtype == (torch.float32 if way == "float32" else torch.bfloat16)
    assert apart(got.float(), expected) < tolerance
    assert apart(valued.float(), expected) < tolerance
    for gradient, right in zip(found, exact, strict=True):
        assert gradient.dtype == torch.float32
        assert apart(gradient, right) < (tolerance if way == "float32" else OF_GRADIENTS)


def test_what_a_user_has_set_for_the_whole_process_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.policy.networks.precision.onednn_rounds", lambda: True)
    onednn: Any = getattr(torch.backends.mkldnn, "matmul")  # noqa: B009  (torch's annotations miss it)
    onednn.fp32_precision = "tf32"
    try:
        for rounds in (True, False):
            with rounding(rounds):
                assert onednn.fp32_precision == ("bf16" if rounds else "tf32")
            assert onednn.fp32_precision == "tf32"
    finally:
        onednn.fp32_precision = "none"
