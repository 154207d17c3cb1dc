"""A batch ready to learn from, and the model unrolled over it."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from remuda.policy.algorithms.muzero.networks import Consistency, MuZeroNetwork

ROUNDED = 64
"""Consistency in bfloat16 is computed for a multiple of so many positions, some twice: torch's processor library keeps
a kernel for each size of such products, and compiling thousands of them would take seconds and gigabytes. Positions
that are computed twice count twice in the moments of the batch, and once in the loss."""


@dataclass(frozen=True)
class Lesson:
    """A batch of B rows, ready to learn from: tensors over its P positions, those of position 0 first, as Positions
    lays them out."""

    counts: tuple[int, ...]
    """Rows that have position 0, 1 … K."""
    observation: torch.Tensor
    """Encoded, of position 0: [B, …]."""
    action: torch.Tensor
    """int64 [P]: what leads to the next position."""
    policy: torch.Tensor
    """float32 [P, actions]: what the search preferred; 0 where it was not asked."""
    value: torch.Tensor
    """float32 [P]: n-step returns."""
    reward: torch.Tensor
    """float32 [P - B]: what the step to each position after 0 brought."""
    acted: torch.Tensor
    """float32 [P]: 1 where there is a policy to learn, else 0."""
    valued: torch.Tensor
    """float32 [P]: 1 where there is a value to learn, else 0."""
    weights: torch.Tensor
    """float32 [P]: importance weights."""
    compared: torch.Tensor
    """int64 [C]: which of the positions after 0 have an observation."""
    seen: torch.Tensor
    """Encoded, of these: [C, …]."""


Part = tuple[float, torch.Tensor, torch.Tensor, torch.Tensor]
"""A part of the loss: its coefficient, and for each position the part [n], its share in the sum, and its weight."""


def summed(parts: Mapping[str, Part]) -> tuple[torch.Tensor, dict[str, float | torch.Tensor]]:
    """The total, by importance weights; and without these and without graphs each part's sum and their total, with the
    first once more, by the names of metrics."""
    weighted = [coefficient * (part @ (shares * weights)) for coefficient, part, shares, weights in parts.values()]
    sums = {name: part.detach() @ shares for name, (_, part, shares, _) in parts.items()}
    plain = torch.stack([parts[name][0] * each for name, each in sums.items()]).sum()
    total = torch.stack(weighted).sum()
    return total, {"weighted_total_loss": total.detach(), "total_loss": plain, **sums}


def consistency(heads: Consistency, imagined: torch.Tensor, seen: torch.Tensor, *, halved: bool) -> torch.Tensor:
    """Cosines [C] of what was imagined and seen, [C, latent] each. In bfloat16, if `halved`."""
    if not halved:
        cosine: torch.Tensor = heads(imagined, seen)
        return cosine
    compared = len(imagined)
    filled = torch.arange(-(-compared // ROUNDED) * ROUNDED, device=imagined.device) % compared
    with torch.autocast(imagined.device.type, torch.bfloat16):
        of_all: torch.Tensor = heads(imagined[filled], seen[filled])
    return of_all[:compared]


def unrolled(network: MuZeroNetwork, lesson: Lesson, hidden_gradient: float) -> list[torch.Tensor]:
    """Latent states of position 0, 1 … K, [rows that have it, latent] each, all imagined but the first. Their gradients
    are multiplied with `hidden_gradient` where they go into the dynamics."""
    latent = [network.represent(lesson.observation)]
    start = 0
    for rows, following in zip(lesson.counts[:-1], lesson.counts[1:], strict=True):
        if not following:
            break
        before = latent[-1][:following]
        slowed = before * hidden_gradient + before.detach() * (1.0 - hidden_gradient)  # the same numbers
        latent.append(network.imagine(slowed, lesson.action[start : start + following]))
        start += rows
    return latent
