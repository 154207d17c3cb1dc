"""The policies of SAC and TD3 as one torch module, for model/."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.policy.acting.distributions import LOG_STD_MAX, LOG_STD_MIN
from remuda.policy.algorithms.twin_critics.networks import ReadingStack, TwinCriticNetwork
from remuda.policy.networks.parts import PartsLayout
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.trunks import PartsTrunk
from remuda.policy.spaces import ActionSpec, ObservationSpec, OutputName


class PortableTwinCritics(Portable):
    """Reads observations as one vector, those of several parts, too; or as an encoder or convolutions read them. Values
    are the lower critic's."""

    def __init__(
        self,
        network: TwinCriticNetwork,
        observation: ObservationSpec,
        action: ActionSpec,
        output_name: OutputName,
        *,
        noise: float = 0.0,
    ) -> None:
        """`noise`: the standard deviation of that in `sample`, of a `unit_action`."""
        super().__init__(network, observation, action, output_name, exploration=noise)
        as_vector = bool(observation.parts) and not isinstance(network.actor, ReadingStack)
        self._parts = PartsTrunk(PartsLayout.of(observation, None)) if as_vector else None
        if action.is_box:
            box = action.bounded(by=output_name)
            self.register_buffer("box_center", torch.from_numpy(box.center), persistent=False)
            self.register_buffer("box_half", torch.from_numpy(box.half), persistent=False)

    def encoded(self, observation: torch.Tensor) -> torch.Tensor:
        """The same as `flat`, where observations are read as one vector."""
        if self._parts is None:
            return super().encoded(observation)
        vectors: torch.Tensor = self._parts(observation)
        return vectors

    def outputs(self, seen: torch.Tensor) -> torch.Tensor:
        """The actor's outputs, or actions in -1 … 1."""
        outputs = super().outputs(seen)
        return outputs.tanh() if self.output_name == "unit_action" else outputs

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        """Of the best action in a Box; of counted actions all, by their probabilities."""
        outputs = self.outputs(seen)
        if self.output_name == "logits":
            return (outputs.softmax(1) * self._least_value(seen)).sum(1)
        return self._least_value(seen, self._units(outputs)).squeeze(1)

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """See Portable."""
        return super().best(outputs) if self.output_name == "logits" else self._from_units(self._units(outputs))

    def drawn(self, outputs: torch.Tensor) -> torch.Tensor:
        """See Portable."""
        if self.output_name == "logits":
            return super().drawn(outputs)
        if self.output_name == "unit_action":
            return self._from_units((outputs + self.exploration * torch.randn_like(outputs)).clamp(-1.0, 1.0))
        mean, log_std = outputs.chunk(2, dim=1)
        std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp()
        return self._from_units((mean + torch.randn_like(mean) * std).tanh())

    def _least_value(self, *seen: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.network, TwinCriticNetwork)
        return self.network.least_value(*seen)

    def _units(self, outputs: torch.Tensor) -> torch.Tensor:
        """The best actions in -1 … 1 [batch, k]."""
        return outputs.chunk(2, dim=1)[0].tanh() if self.output_name == "squashed_gaussian" else outputs

    def _from_units(self, units: torch.Tensor) -> torch.Tensor:
        """The same as UnitBox.to_environment."""
        return self.to_environment(units * self.get_buffer("box_half") + self.get_buffer("box_center"))
