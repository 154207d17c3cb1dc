"""Batch normalisation (Ioffe and Szegedy 2015), and perceptrons with it."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional

from remuda.policy.networks import program
from remuda.policy.networks.reading import Names
from remuda.policy.networks.trunks import is_tracing


class BatchNorm(nn.Module):
    """Batch normalisation of [n, features]. A batch of one row has no variance and uses the running moments, as all
    batches do outside training."""

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(
        self, features: int, *, epsilon: float = 1e-5, momentum: float = 0.1, learns_scale: bool = True
    ) -> None:
        """`momentum`: share of the newest batch in the running mean and variance. `learns_scale`: also learn a
        scale and an offset."""
        super().__init__()
        self.epsilon, self._momentum = epsilon, momentum
        self.weight = nn.Parameter(torch.ones(features)) if learns_scale else None
        self.bias = nn.Parameter(torch.zeros(features)) if learns_scale else None
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Scale each feature to mean 0 and variance 1, then by the learned scale and offset, if any."""
        if is_tracing() and inputs.dim() == 2:  # ONNX refuses rows of a width that is known only when it runs
            scale = (self.running_var + self.epsilon).rsqrt()
            scaled = (inputs - self.running_mean) * scale
            return scaled if self.weight is None or self.bias is None else scaled * self.weight + self.bias
        return functional.batch_norm(
            inputs,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training and inputs.shape[0] > 1,
            momentum=self._momentum,
            eps=self.epsilon,
        )

    def folded_into(self, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Fold this normalisation, as outside training, into the layer before it: returns copies of the weight
        [outputs, …] and bias [outputs]."""
        assert self.weight is not None
        assert self.bias is not None
        scale = self.weight.detach() * (self.running_var + self.epsilon).rsqrt()
        before = torch.zeros_like(self.running_mean) if bias is None else bias.detach()
        scaled = weight.detach() * scale.view(-1, *[1] * (weight.dim() - 1))
        return scaled, (before - self.running_mean) * scale + self.bias.detach()

    def steps(self, names: Names) -> program.Steps:
        moments = names.of(self.running_mean), names.of(self.running_var)
        return (program.BatchNorm(*moments, names.maybe(self.weight), names.maybe(self.bias), self.epsilon),)


def normalised_perceptron(widths: Sequence[int], *, momentum: float) -> nn.Sequential:
    """Make a perceptron of these widths, with batch normalisation of the inputs and before each relu: float32 [n,
    widths[0]] -> [n, widths[-1]].

    Parameters that the next normalisation cancels are left out: the bias of a layer before a normalisation, and the
    scale and offset of the inputs. Their gradient is only rounding error, which Adam turns into whole steps.
    """
    *hidden, last = itertools.pairwise(widths)

    def norm(features: int) -> BatchNorm:
        return BatchNorm(features, epsilon=1e-3, momentum=momentum)

    layers: list[nn.Module] = [BatchNorm(widths[0], epsilon=1e-3, momentum=momentum, learns_scale=not hidden)]
    for inputs, outputs in hidden:
        layers += [nn.Linear(inputs, outputs, bias=False), norm(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(*last))


class BatchNorms:
    """All batch normalisations of a module. They use their running moments, except in `by_batch`."""

    def __init__(self, module: nn.Module) -> None:
        kinds = (BatchNorm, nn.modules.batchnorm._BatchNorm)  # pyright: ignore[reportPrivateUsage]
        self._norms = [part for part in module.modules() if isinstance(part, kinds)]
        self.use_running()

    def use_running(self) -> None:
        """Use the running moments from now on."""
        for norm in self._norms:
            norm.training = False

    @contextmanager
    def by_batch(self) -> Generator[None]:
        """Context with the moments of each batch, which also move the running moments."""
        for norm in self._norms:
            norm.training = True
        try:
            yield
        finally:
            self.use_running()
