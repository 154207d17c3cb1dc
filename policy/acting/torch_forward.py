"""A forward pass in torch: on the CPU faster than plain arrays once convolutions are large, and the way to a GPU.

Tracing and freezing gained nothing over calling the functions on plain tensors (benchmarks/inference.py), and would
have to be done again for every version of the policy.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from remuda.policy.acting.weights import Filters, Forward, Weights
from remuda.policy.networks.parts import PartsLayout, vector_of
from remuda.policy.networks.tensors import to_tensor

CPU = torch.device("cpu")
_Layer = tuple[torch.Tensor, torch.Tensor, int]


def torch_forward(weights: Weights, device: torch.device = CPU) -> Forward:
    """Make the forward pass of these weights, which on the CPU are shared, not copied."""
    filters = _on(device, weights.filters)
    parts = None if weights.parts is None else _parts(weights, weights.parts, device)
    between = [(to_tensor(layer.weight, device), to_tensor(layer.bias, device)) for layer in weights.dense]
    last = between.pop() if between else None
    activate = torch.tanh_ if weights.activation == "tanh" else torch.relu_

    @torch.inference_mode()
    def forward(observations: np.ndarray) -> NDArray[np.float32]:
        hidden = to_tensor(observations, device) if parts is None else parts(observations)
        if filters:
            hidden = _convolved(hidden, filters, channels_last=weights.channels_last)
        for weight, bias in between:
            hidden = activate(functional.linear(hidden, weight, bias))
        outputs: NDArray[np.float32] = (hidden if last is None else functional.linear(hidden, *last)).cpu().numpy()
        return outputs

    return forward


def _on(device: torch.device, filters: Sequence[Filters]) -> list[_Layer]:
    return [(to_tensor(layer.weight, device), to_tensor(layer.bias, device), layer.stride) for layer in filters]


def _convolved(images: torch.Tensor, filters: Sequence[_Layer], *, channels_last: bool) -> torch.Tensor:
    hidden = images.float()
    if channels_last:
        hidden = hidden.permute(0, 3, 1, 2)  # a view: the convolution reads it as it lies
    for weight, bias, stride in filters:
        hidden = torch.relu_(functional.conv2d(hidden, weight, bias, stride))
    return hidden.flatten(1)


def _parts(weights: Weights, layout: PartsLayout, device: torch.device) -> Callable[[np.ndarray], torch.Tensor]:
    """What a PartsTrunk makes of rows of bytes."""
    filters = [_on(device, each) for each in weights.parts_filters]

    def read(rows: np.ndarray) -> torch.Tensor:
        features = [to_tensor(vector_of(part, rows), device) for part in layout.vectors]
        for image, own in zip(layout.images, filters, strict=True):
            pixels = to_tensor(image.observation.encode(image.part.of(rows)), device)
            features.append(_convolved(pixels, own, channels_last=image.layout.pixels.channels_last))
        return torch.cat(features, dim=1)

    return read


def lower_forward(weights: Weights) -> Forward:
    """The same on the CPU with convolutions and all layers but the last in bfloat16, and channels last. Images of bytes
    are exact in it; outputs are within 1 % of the largest."""
    number, last = torch.bfloat16, torch.channels_last
    filters = [
        (
            to_tensor(layer.weight, CPU).to(number, memory_format=last),
            to_tensor(layer.bias, CPU).to(number),
            layer.stride,
        )
        for layer in weights.filters
    ]
    *between, final = [(to_tensor(layer.weight, CPU), to_tensor(layer.bias, CPU)) for layer in weights.dense]
    lowered = [(weight.to(number), bias.to(number)) for weight, bias in between]
    activate = torch.tanh_ if weights.activation == "tanh" else torch.relu_

    @torch.inference_mode()
    def forward(observations: np.ndarray) -> NDArray[np.float32]:
        hidden = to_tensor(observations, CPU)
        if filters:
            pixels = hidden if weights.channels_last else hidden.permute(0, 2, 3, 1).contiguous()
            hidden = pixels.to(number).permute(0, 3, 1, 2)
            for weight, bias, stride in filters:
                hidden = torch.relu_(functional.conv2d(hidden, weight, bias, stride))
            hidden = hidden.flatten(1)
        for weight, bias in lowered:
            hidden = activate(functional.linear(hidden.to(number), weight, bias))
        outputs: NDArray[np.float32] = functional.linear(hidden.float(), *final).numpy()
        return outputs

    return forward
