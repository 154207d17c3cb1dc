"""A forward pass in torch: on the CPU faster than plain arrays once convolutions are large, and the way to a GPU.

Tracing and freezing gained nothing over calling the functions on plain tensors (benchmarks/inference.py), and would
have to be done again for every version of the policy.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from remuda.policy.acting.weights import Forward, Weights
from remuda.policy.networks.tensors import to_tensor

CPU = torch.device("cpu")


def torch_forward(weights: Weights, device: torch.device = CPU) -> Forward:
    """Make the forward pass of these weights, which on the CPU are shared, not copied."""
    filters = [
        (to_tensor(layer.weight, device), to_tensor(layer.bias, device), layer.stride) for layer in weights.filters
    ]
    between = [(to_tensor(layer.weight, device), to_tensor(layer.bias, device)) for layer in weights.dense]
    last = between.pop() if between else None
    activate = torch.tanh_ if weights.activation == "tanh" else torch.relu_

    @torch.inference_mode()
    def forward(observations: np.ndarray) -> NDArray[np.float32]:
        hidden = to_tensor(observations, device)
        if filters:
            hidden = hidden.float()
            if weights.channels_last:
                hidden = hidden.permute(0, 3, 1, 2)  # a view: the convolution reads it as it lies
            for weight, bias, stride in filters:
                hidden = torch.relu_(functional.conv2d(hidden, weight, bias, stride))
            hidden = hidden.flatten(1)
        for weight, bias in between:
            hidden = activate(functional.linear(hidden, weight, bias))
        outputs: NDArray[np.float32] = (hidden if last is None else functional.linear(hidden, *last)).cpu().numpy()
        return outputs

    return forward
