"""R2D2's network as model/ holds it."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import torch

from remuda.config.algorithms.q_learning import R2d2Config
from remuda.policy.algorithms.r2d2.layout import layout
from remuda.policy.networks.portable import PortableQ
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.recurrent_portable import RecurrentPortablePolicy
from remuda.policy.networks.rescaling import unscaled
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec


class PortableR2d2(RecurrentPortablePolicy):
    """Takes the action of the highest value, given all observations of the episode."""

    def __init__(
        self,
        network: RecurrentNetwork[QNetwork],
        observation: ObservationSpec,
        action: ActionSpec,
        config: R2d2Config,
    ) -> None:
        laid_out = layout(config, observation)
        acts = _RescaledQ if config.value_rescaling else PortableQ
        head = acts(network.head, laid_out.remembered, action, epsilon=config.epsilon_end)
        super().__init__(network.encoder, network.core, head, observation, action, laid_out)


class _RescaledQ(PortableQ):
    """Its network's values are rescaled ones."""

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """In the environment's own rewards."""
        return unscaled(super().value(observation))
