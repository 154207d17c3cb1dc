"""Rainbow's policy as one torch module, as model/ holds it."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import torch
from torch import nn

from remuda.policy.algorithms.rainbow.distribution import ReturnDistribution
from remuda.policy.networks.portable import QActing
from remuda.policy.spaces import ActionSpec, ObservationSpec


class PortableRainbow(QActing):
    """Takes the action of the highest expected return, in `sample` with noise in the weights."""

    def __init__(
        self,
        network: nn.Module,
        observation: ObservationSpec,
        action: ActionSpec,
        distribution: ReturnDistribution,
        *,
        epsilon: float,
    ) -> None:
        """`epsilon` is the share of random actions in `sample`."""
        super().__init__(observation, action, epsilon=epsilon)
        self.network, self._distribution = network, distribution

    def exploring_values(self, observation: torch.Tensor) -> torch.Tensor:
        """By weights with noise, if its layers are noisy, as collectors value actions."""
        return self._distribution.expectation(self.network(self.encoded(observation), torch.randn_like))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The expected return of each action."""
        return self._distribution.expectation(self.network(self.encoded(observation)))
