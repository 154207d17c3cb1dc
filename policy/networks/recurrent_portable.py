"""A recurrent policy as one torch module that needs nothing else: this is traced for model/."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.policy.networks.normalisation import CLIP
from remuda.policy.networks.portable import Normalisation, Portable, PortablePolicy
from remuda.policy.networks.recurrence import RecurrentLayout
from remuda.policy.networks.recurrent_networks import Core, Encoder
from remuda.policy.spaces import ActionSpec, ObservationSpec

Answer = tuple[torch.Tensor, torch.Tensor]


class RecurrentPortablePolicy(Portable):
    """Every method takes observations [batch, …] and states [batch, size], 0 where an episode begins, and returns its
    answer together with the states to give with the next observations."""

    def __init__(
        self,
        encoder: Encoder,
        core: Core,
        head: PortablePolicy,
        observation: ObservationSpec,
        action: ActionSpec,
        layout: RecurrentLayout,
    ) -> None:
        """`head` acts on observations like `layout.remembered`. All three are shared, not copied."""
        super().__init__(observation, action, normalises=layout.normalizes)
        self.encoder, self.core, self.head = encoder, core, head
        self.output_name = head.output_name
        self.state_size = layout.state_size
        if encoder.observations is not None:
            moments = encoder.observations.load()
            self.normalisation = Normalisation(moments.mean.tolist(), (1.0 / moments.scale).tolist(), CLIP)

    def forward(self, observation: torch.Tensor, state: torch.Tensor) -> Answer:
        """The network's outputs: float32 [batch, k]."""
        remembered, after = self.remembered(observation, state)
        return self.head(remembered), after

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The best actions, given the outputs of `forward`."""
        return self.head.best(outputs)

    def act(self, observation: torch.Tensor, state: torch.Tensor) -> Answer:
        """The best actions."""
        remembered, after = self.remembered(observation, state)
        return self.head.act(remembered), after

    def sample(self, observation: torch.Tensor, state: torch.Tensor) -> Answer:
        """Actions with the exploration of the end of the schedule; torch's generator decides."""
        remembered, after = self.remembered(observation, state)
        return self.head.sample(remembered), after

    def value(self, observation: torch.Tensor, state: torch.Tensor) -> Answer:
        """The return expected from here on: float32 [batch]."""
        remembered, after = self.remembered(observation, state)
        return self.head.value(remembered), after

    def remembered(self, observation: torch.Tensor, state: torch.Tensor) -> Answer:
        """What `head` acts on: float32 [batch, units]."""
        remembered, after = self.core(self.encoder(self.encoder.normalised(self.encoded(observation))), state)
        return remembered, after
