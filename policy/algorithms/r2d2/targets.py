"""The priority of a sequence that R2D2 has learned from."""

from __future__ import annotations

import torch


def sequence_priorities(errors: torch.Tensor, valid: torch.Tensor, *, eta: float) -> torch.Tensor:
    """eta * max + (1 - eta) * mean of the absolute errors [B, T] of the steps that are `valid`, section 2.3 of the
    paper: float32 [B]; 0 for a sequence without any."""
    sizes = errors.abs() * valid
    mean = sizes.sum(1) / valid.sum(1).clamp(min=1)
    return eta * sizes.amax(1) + (1.0 - eta) * mean
