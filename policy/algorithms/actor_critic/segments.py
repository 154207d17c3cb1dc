"""A batch of segments ready to learn from, and what an update computes of it."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.policy.algorithms.actor_critic.networks import Unrolled
from remuda.policy.returns import Outcome

Seen = torch.Tensor | Unrolled
"""Observations [n, …], each by itself, or segments to unroll."""


@dataclass(frozen=True)
class Segments:
    """A batch of B segments of T slots, of which n are valid, ready to learn from."""

    observations: Seen
    """float32 [B * (T + 1), features], normalised; or bytes of images, [B * (T + 1), …]; for recurrent networks, to be
    unrolled."""
    outcome: Outcome
    """Each [B, T]; rewards scaled."""
    steps: torch.Tensor
    """int64 [n]: indices of the observations in which the valid actions were taken."""
    actions: torch.Tensor
    """Indices int64 [n], or [n, components] of several; or numbers float32 [n, outputs]."""
    log_prob: torch.Tensor
    """float32 [n]: by the policy that acted."""
    legal: torch.Tensor | None
    """bool [n, actions]: which actions were legal; None: all were."""
    reward_scale: float
    """The factor by which the environment's rewards were multiplied; values have the same scale."""
    first: int
    """The number of valid slots in the parts of the batch that lower ranks have."""
    whole: int
    """The number of valid slots in the whole batch: n, and those of the other ranks."""

    @property
    def of_steps(self) -> Seen:
        """The observations of the valid slots."""
        if isinstance(self.observations, Unrolled):
            return replace(self.observations, steps=self.steps)
        return self.observations.index_select(0, self.steps)  # for images several times as fast as by [ ]

    def per_slot(self, values: torch.Tensor) -> NDArray[np.float32]:
        """Values [B * (T + 1)] of the observations as float32 [B, T + 1] on the host."""
        array: NDArray[np.float32] = values.detach().cpu().numpy()
        return array.reshape(len(self.outcome.valid), -1)


class Losses(NamedTuple):
    """The loss of an update and its parts: policy + value_coefficient * value - entropy_coefficient * entropy."""

    total: torch.Tensor
    """A scalar with its graph; the same for `policy`, `value` and `entropy`. Each is a mean over the actions."""
    policy: torch.Tensor
    value: torch.Tensor
    entropy: torch.Tensor
    log_ratio: torch.Tensor
    """float32 [n]: log ratio of the policy to the one that acted, for each action. PPO's has a graph, for variants that
    restrain it in other ways."""
    values: torch.Tensor
    """float32 [n]: of the observations in which the actions were taken; the same for `targets`."""
    targets: torch.Tensor

    @property
    def means(self) -> tuple[torch.Tensor, ...]:
        """The four losses, without a graph."""
        return tuple(loss.detach() for loss in self[:4])
