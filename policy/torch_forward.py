"""A forward pass in torch on the CPU: faster than plain arrays once convolutions are large.

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

from remuda.policy.weights import Forward, Weights


def torch_forward(weights: Weights) -> Forward:
    """Make the forward pass of these weights, which are shared, not copied."""
    filters = [(_tensor(layer.weight), _tensor(layer.bias), layer.stride) for layer in weights.filters]
    between = [(_tensor(layer.weight), _tensor(layer.bias)) for layer in weights.dense]
    last_weight, last_bias = between.pop()
    activate = torch.tanh_ if weights.activation == "tanh" else torch.relu_

    @torch.inference_mode()
    def forward(observations: np.ndarray) -> NDArray[np.float32]:
        hidden = _tensor(observations)
        if filters:
            hidden = hidden.float()
            if weights.channels_last:
                hidden = hidden.permute(0, 3, 1, 2)  # a view: the convolution reads it as it lies
            for weight, bias, stride in filters:
                hidden = torch.relu_(functional.conv2d(hidden, weight, bias, stride))
            hidden = hidden.flatten(1)
        for weight, bias in between:
            hidden = activate(functional.linear(hidden, weight, bias))
        outputs: NDArray[np.float32] = functional.linear(hidden, last_weight, last_bias).numpy()
        return outputs

    return forward


def _tensor(array: np.ndarray) -> torch.Tensor:
    # torch warns of read-only memory, which weights out of a message and a collector's shared columns may be.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
