"""Small networks of each kind, and observations for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.models import ConvolutionNetwork, PerceptronNetwork
from remuda.policy.algorithms.muzero.networks import MuZeroNetwork
from remuda.policy.networks.layouts import Pixels
from remuda.policy.spaces import ObservationSpec

Projection = tuple[int, int] | None

ACTIONS, ATOMS = 4, 11
FRAMES = ObservationSpec((2, 20, 17), "uint8", 0.0, 255.0)
"""Halved twice."""
BOARD = ObservationSpec((5, 4, 3), "bool", 0.0, 1.0)
"""Never downsampled, and with channels last."""


@dataclass(frozen=True)
class Kind:
    """A kind of network."""

    observation: ObservationSpec
    latent: tuple[int, ...]
    make: Callable[[Projection], MuZeroNetwork]

    def network(self, projection: Projection) -> MuZeroNetwork:
        return self.make(projection)

    def trained(self, projection: Projection = None) -> MuZeroNetwork:
        """With drawn weights and moments, as if trained."""
        torch.manual_seed(0)
        network = self.make(projection)
        for parameter in network.parameters():
            parameter.data.normal_(0.0, 0.4)
        for name, buffer in network.named_buffers():
            buffer.uniform_(0.5, 2.0) if name.endswith("var") else buffer.normal_()
        return network.eval().requires_grad_(False)

    def seen(self, n: int, seed: int = 1) -> torch.Tensor:
        """Encoded observations."""
        generator = torch.Generator().manual_seed(seed)
        if not self.observation.is_image:
            return 100.0 * torch.randn(n, self.observation.features, generator=generator)
        highest = int(self.observation.high or 1) + 1
        drawn = torch.randint(0, highest, (n, *self.observation.shape), generator=generator)
        return drawn.to(torch.bool if self.observation.dtype == "bool" else torch.uint8)


def perceptrons(projection: Projection) -> MuZeroNetwork:
    return PerceptronNetwork(settings(projection, hidden=(9, 6), latent=8), 3, ACTIONS, trains=projection is not None)


def settings(projection: Projection, **others: Any) -> MuZeroConfig:
    units, bottleneck = projection or (1, 1)
    return MuZeroConfig(
        head_hidden=7, support_size=(ATOMS - 1) // 2, projection_units=units, projection_bottleneck=bottleneck, **others
    )


def convolutions(observation: ObservationSpec, channels: int, blocks: int) -> Callable[[Projection], MuZeroNetwork]:
    def make(projection: Projection) -> MuZeroNetwork:
        pixels = Pixels.of(observation)
        assert pixels is not None
        made = settings(projection, channels=channels, residual_blocks=blocks)
        return ConvolutionNetwork(made, pixels, ACTIONS, trains=projection is not None)

    return make


VECTORS = Kind(ObservationSpec((3,), "float32"), (8,), perceptrons)
KINDS = [
    pytest.param(VECTORS, id="vectors"),
    pytest.param(Kind(FRAMES, (6, 5, 5), convolutions(FRAMES, 6, 1)), id="frames"),
    pytest.param(Kind(BOARD, (5, 5, 4), convolutions(BOARD, 5, 2)), id="boards"),
]
