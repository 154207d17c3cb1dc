"""TD3's policy as one torch module, for model/."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import torch

from remuda.policy.algorithms.twin_critics.networks import TwinCriticNetwork
from remuda.policy.algorithms.twin_critics.portable import PortableUnitBox
from remuda.policy.spaces import ActionSpec, ObservationSpec


class PortableTd3(PortableUnitBox):
    """Takes the actor's action, or one near it."""

    output_name = "unit_action"

    def __init__(
        self, network: TwinCriticNetwork, observation: ObservationSpec, action: ActionSpec, *, noise: float
    ) -> None:
        """`noise`: the standard deviation of the noise in `sample`."""
        super().__init__(network, observation, action.bounded(by="td3"), action)
        self._noise = noise

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The actor's actions in -1 … 1."""
        return self.units(super().forward(observation))

    def units(self, outputs: torch.Tensor) -> torch.Tensor:
        """See PortableUnitBox."""
        return outputs.tanh()

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The actor's actions."""
        return self.from_units(outputs)

    def sample(self, observation: torch.Tensor) -> torch.Tensor:
        """The actor's actions with noise."""
        units = self.forward(observation)
        return self.from_units((units + self._noise * torch.randn_like(units)).clamp(-1.0, 1.0))
