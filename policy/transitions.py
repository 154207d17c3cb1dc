"""Batches of replayed steps, on the device of the learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from remuda.policy.base import Arrays
from remuda.policy.networks.layouts import flat
from remuda.policy.networks.tensors import legal_in, to_tensor
from remuda.policy.spaces import ActionSpec, ObservationSpec


@dataclass(frozen=True)
class Transitions:
    """A batch of n rows of `n_step` environment steps each; see remuda.config.declaration.Steps."""

    obs: torch.Tensor
    """[n, …]: encoded."""
    next_obs: torch.Tensor
    action: torch.Tensor
    """Indices of Discrete actions, int64 [n]; or the numbers of a Box in -1 … 1, float32 [n, k]."""
    reward: torch.Tensor
    """float32 [n]; the same for `discount`, 0 where the episode terminated, and `weights`."""
    discount: torch.Tensor
    weights: torch.Tensor
    legal: torch.Tensor | None
    """bool [n, actions]: legal actions in obs; None: all are legal. `next_legal` likewise for next_obs."""
    next_legal: torch.Tensor | None

    def __len__(self) -> int:
        return len(self.reward)

    @classmethod
    def of(
        cls, batch: Arrays, observation: ObservationSpec, action: ActionSpec, device: torch.device, *, as_vector: bool
    ) -> Transitions:
        """Move a batch to a device. With `as_vector` every observation becomes one vector, also with several parts."""

        def given(column: np.ndarray) -> torch.Tensor:
            return to_tensor(column, device)

        def encoded(name: str) -> torch.Tensor:
            return given(flat(observation, batch[name]) if as_vector else observation.encode(batch[name]))

        if action.n is None:
            taken = action.bounded(by="an algorithm that replays steps").from_environment(batch["action"])
        else:
            taken = action.indices(batch["action"])
        return cls(
            encoded("obs"),
            encoded("next_obs"),
            given(taken),
            given(batch["reward"]),
            given(batch["discount"]),
            given(batch["weights"]),
            legal_in(batch, "legal", device),
            legal_in(batch, "next_legal", device),
        )
