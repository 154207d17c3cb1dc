"""Illegal actions in updates: what a batch says of them, and logits and values without them."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from remuda.policy.networks.tensors import to_tensor


def legal_in(batch: Mapping[str, np.ndarray], name: str, device: torch.device) -> torch.Tensor | None:
    """A batch's column of legal actions, bool [..., n]; None where environments do not say: all are legal."""
    column = batch.get(name)
    return None if column is None else to_tensor(column, device)


def masked(numbers: torch.Tensor, legal: torch.Tensor | None) -> torch.Tensor:
    """Logits or values [..., n] with -inf in place of those of illegal actions: so none of them is the best, and none
    has a probability or a gradient. `legal` bool [..., n] has one at least in each row; None: all are legal."""
    return numbers if legal is None else numbers.masked_fill(~legal, -torch.inf)
