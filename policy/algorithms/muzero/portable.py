"""MuZero's network without a search, as model/ holds it."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import torch

from remuda.policy.algorithms.muzero.networks import MuZeroNetwork
from remuda.policy.algorithms.muzero.scaling import Support
from remuda.policy.networks.portable import PortablePolicy
from remuda.policy.spaces import ActionSpec, ObservationSpec


class PortableMuZero(PortablePolicy):
    """Takes the action that the network expects a search to visit most, or draws from its policy."""

    output_name = "logits"

    def __init__(
        self, network: MuZeroNetwork, observation: ObservationSpec, action: ActionSpec, *, support_size: int
    ) -> None:
        """Shares the parts of the network that it needs: what searches imagine, and what trains it, stay out."""
        super().__init__(observation, action)
        self.representation, self.common = network.representation, network.common
        self.policy, self.value_head = network.policy, network.value
        self._support = Support(support_size)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Logits of the policy."""
        logits: torch.Tensor = self.policy(self._features(observation))
        return logits

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The likeliest actions."""
        return self.to_environment(outputs.argmax(1))

    def sample(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions drawn from the policy."""
        return self.to_environment(self.forward(observation).softmax(1).multinomial(1).squeeze(1))

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """In the environment's own rewards."""
        return self._support.expectation(self.value_head(self._features(observation)))

    def _features(self, observation: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.common(self.representation(self.encoded(observation)))
        return features
