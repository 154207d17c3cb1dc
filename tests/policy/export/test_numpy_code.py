"""Policies in numpy: each operation equals torch's, and unknown operations are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from remuda.policy.export.numpy_code import NotInNumpyError, NumpyCode
from remuda.policy.files.model_artifact import without_deprecation

ROWS, IMAGES = (5, 6), (5, 4, 9, 11)


class Halving(nn.Module):
    """Changes a copy of its input in place."""

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        halves = numbers.clone()
        halves /= 2
        return halves


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 3), ROWS),
    "linear without bias": (lambda: nn.Linear(6, 3, bias=False), ROWS),
    "relu": (nn.ReLU, ROWS),
    "leaky relu": (nn.LeakyReLU, ROWS),
    "elu": (nn.ELU, ROWS),
    "silu": (nn.SiLU, ROWS),
    "gelu": (nn.GELU, ROWS),
    "gelu by tanh": (lambda: nn.GELU("tanh"), ROWS),
    "softplus": (nn.Softplus, ROWS),
    "sigmoid": (nn.Sigmoid, ROWS),
    "tanh": (nn.Tanh, ROWS),
    "softmax": (lambda: nn.Softmax(1), ROWS),
    "layer norm": (lambda: nn.LayerNorm(6), ROWS),
    "layer norm of images": (lambda: nn.LayerNorm([4, 9, 11], elementwise_affine=False), IMAGES),
    "batch norm": (lambda: nn.BatchNorm1d(6), ROWS),
    "batch norm of images": (lambda: nn.BatchNorm2d(4), IMAGES),
    "convolution": (lambda: nn.Conv2d(4, 3, (3, 2), (2, 1), (1, 0)), IMAGES),
    "convolution without bias": (lambda: nn.Conv2d(4, 3, 3, bias=False), IMAGES),
    "means": (lambda: nn.AvgPool2d(3, 2, 1), IMAGES),
    "flatten": (nn.Flatten, IMAGES),
    "dropout": (nn.Dropout, ROWS),
    "copy": (Halving, ROWS),
    "perceptron": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2)), ROWS),
}


def drawn(module: nn.Module) -> nn.Module:
    """The module with random weights and moments."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
    return module.eval().requires_grad_(False)


class Tupled(nn.Module):
    """A module as policies are: with several outputs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        answer = self.inner(*given)
        return answer if isinstance(answer, tuple) else (answer, answer + 1)


def computed(module: nn.Module, *inputs: torch.Tensor) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """By torch, and by the lines in numpy."""
    tupled, names = Tupled(module).eval(), [f"i{index}" for index in range(len(inputs))]
    with without_deprecation(), torch.no_grad():
        traced: Any = torch.jit.trace(tupled, tuple(part[:2] for part in inputs), check_trace=False)  # type: ignore[no-untyped-call]
        code = NumpyCode(traced, names)
        expected = [answer.numpy() for answer in tupled(*inputs)]
    lines = "\n".join(f"    {line}" for line in code.lines([f"o{index}" for index in range(len(expected))]))
    text = "\n".join((*code.functions, f"def run(w, {', '.join(names)}):", lines))
    namespace: dict[str, Any] = {"np": np}
    exec(text, namespace)
    return expected, list(namespace["run"](code.arrays, *(part.numpy() for part in inputs)))


@pytest.mark.parametrize("name", MODULES)
def test_it_gives_what_torch_gives(name: str) -> None:
    make, shape = MODULES[name]
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    expected, found = computed(drawn(make()), inputs)
    for one, other in zip(expected, found, strict=True):
        assert other.dtype == one.dtype
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "shape", "told"),
    [
        (nn.Conv2d(4, 4, 3, groups=2), IMAGES, "in groups"),
        (nn.Conv2d(4, 4, 3, dilation=2), IMAGES, "dilated"),
        (nn.Upsample(scale_factor=2), IMAGES, "aten::upsample_nearest2d"),
    ],
)
def test_what_it_has_no_form_for_is_refused(module: nn.Module, shape: tuple[int, ...], told: str) -> None:
    with pytest.raises(NotInNumpyError, match=told):
        computed(drawn(module), torch.zeros(shape))
