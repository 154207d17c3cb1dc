"""The acting side of algorithms whose policy is one torch module: the base for custom algorithms."""

from __future__ import annotations

import numpy as np
import torch

from remuda.policy.base import Arrays, Policy
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, ObservationSpec


class NetworkPolicy(Policy):
    """Acts on the outputs of a network. A subclass defines the action that they mean (`act`) and their value
    (`value`)."""

    def __init__(
        self, network: torch.nn.Module, observation: ObservationSpec, action: ActionSpec, *, device: str = "cpu"
    ) -> None:
        """Moves the network to `device`. It reads what ObservationSpec.encode gives, [n, …]."""
        self.network = network.to(device).eval().requires_grad_(False)
        self.observation, self.action = observation, action
        self._device = torch.device(device)
        self._shapes = {name: tuple(tensor.shape) for name, tensor in self._state().items()}

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        require_fit(self._shapes, state, what="policy")
        for name, tensor in self._state().items():
            tensor.copy_(torch.tensor(state[name]))

    def outputs(self, observations: np.ndarray) -> np.ndarray:
        """The network's outputs for observations [n, …], as environments give them."""
        seen = torch.tensor(self.observation.encode(observations), device=self._device)
        with torch.inference_mode():
            given: torch.Tensor = self.network(seen)
        return given.cpu().numpy()

    def _state(self) -> dict[str, torch.Tensor]:
        return dict(self.network.state_dict())
