"""Policies of SAC and TD3 as one torch module, for model/: what they have in common."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import abstractmethod

import torch

from remuda.policy.algorithms.twin_critics.networks import ReadingStack, TwinCriticNetwork
from remuda.policy.networks.parts import PartsLayout
from remuda.policy.networks.portable import PortablePolicy
from remuda.policy.networks.trunks import PartsTrunk
from remuda.policy.spaces import ActionSpec, ObservationSpec, UnitBox


class PortableTwinCritics(PortablePolicy):
    """Reads observations as one vector, those of several parts, too; or as an encoder or convolutions read them."""

    def __init__(self, network: TwinCriticNetwork, observation: ObservationSpec, action: ActionSpec) -> None:
        super().__init__(observation, action)
        self.network = network
        as_vector = bool(observation.parts) and not isinstance(network.actor, ReadingStack)
        self._parts = PartsTrunk(PartsLayout.of(observation, None)) if as_vector else None

    def encoded(self, observation: torch.Tensor) -> torch.Tensor:
        """The same as `flat`, where observations are read as one vector."""
        if self._parts is None:
            return super().encoded(observation)
        vectors: torch.Tensor = self._parts(observation)
        return vectors


class PortableUnitBox(PortableTwinCritics):
    """Acts in -1 … 1, from where actions are brought to the bounds of the Box."""

    def __init__(
        self, network: TwinCriticNetwork, observation: ObservationSpec, box: UnitBox, action: ActionSpec
    ) -> None:
        super().__init__(network, observation, action)
        self.register_buffer("box_center", torch.from_numpy(box.center), persistent=False)
        self.register_buffer("box_half", torch.from_numpy(box.half), persistent=False)

    @abstractmethod
    def units(self, outputs: torch.Tensor) -> torch.Tensor:
        """The best actions in -1 … 1 [batch, k], given the actor's outputs."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The actor's outputs."""
        outputs: torch.Tensor = self.network(self.encoded(observation))
        return outputs

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The best actions."""
        return self.from_units(self.units(outputs))

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """The lower critic's estimate for the best action."""
        seen = self.encoded(observation)
        best = self.units(self.network(seen))
        return self.network.least_value(seen, best).squeeze(1)

    def from_units(self, units: torch.Tensor) -> torch.Tensor:
        """The same as UnitBox.to_environment."""
        return self.to_environment(units * self.get_buffer("box_half") + self.get_buffer("box_center"))
