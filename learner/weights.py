"""Histograms of a network's weights, layer by layer."""

# torch's annotations are partial: pyright does not know what indexing returns.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import torch

from remuda.logbook.statistics import spread_evenly
from remuda.wire.messages import Histogram

BUCKETS = 32
MOST_PER_LAYER = 1 << 16
"""The most weights of one layer that are counted; of a larger layer every n-th is, which looks the same and costs no
more."""


def weight_histograms(network: torch.nn.Module) -> dict[str, Histogram]:
    """Histograms by the name of each parameter, such as `torso.0.weight`; parameters without a finite number are left
    out."""
    found: dict[str, Histogram] = {}
    for name, parameter in network.named_parameters():
        # n is odd: an even one would meet the same few columns in every row of a layer of 2^k columns.
        every = -(-parameter.numel() // MOST_PER_LAYER) | 1
        sample = parameter.detach().reshape(-1)[::every].float().cpu().numpy()
        histogram = spread_evenly(sample, BUCKETS)
        if histogram is not None:
            found[name] = histogram
    return found
