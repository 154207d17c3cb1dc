"""Soft actor-critic's policy as one torch module, for model/."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.policy.acting.distributions import LOG_STD_MAX, LOG_STD_MIN
from remuda.policy.algorithms.twin_critics.networks import TwinCriticNetwork
from remuda.policy.algorithms.twin_critics.portable import PortableTwinCritics, PortableUnitBox
from remuda.policy.spaces import ActionSpec, ObservationSpec


class PortableSac(PortableUnitBox):
    """Takes what the mean becomes by tanh, or draws."""

    output_name = "squashed_gaussian"

    def __init__(self, network: TwinCriticNetwork, observation: ObservationSpec, action: ActionSpec) -> None:
        super().__init__(network, observation, action.bounded(by="sac"), action)

    def units(self, outputs: torch.Tensor) -> torch.Tensor:
        """See PortableUnitBox."""
        return outputs.chunk(2, dim=1)[0].tanh()

    def sample(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions drawn from the distribution."""
        mean, log_std = self.forward(observation).chunk(2, dim=1)
        std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp()
        return self.from_units((mean + torch.randn_like(mean) * std).tanh())


class PortableDiscreteSac(PortableTwinCritics):
    """Takes the likeliest action, or draws."""

    output_name = "logits"

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Logits of the actions."""
        outputs: torch.Tensor = self.network(self.encoded(observation))
        return outputs

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The likeliest actions."""
        return self.to_environment(outputs.argmax(1))

    def sample(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions drawn by their probabilities."""
        return self.to_environment(self.forward(observation).softmax(1).multinomial(1).squeeze(1))

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """The lower critic's estimates, by the probabilities of the actions."""
        seen = self.encoded(observation)
        probabilities: torch.Tensor = self.network(seen).softmax(1)
        return (probabilities * self.network.least_value(seen)).sum(1)
