"""SAC, CrossQ, TD3 and IQL as one self-contained module, for model/ and for exports."""

from __future__ import annotations

import torch

from remuda.policy.acting.distributions import LOG_STD_MAX, LOG_STD_MIN
from remuda.policy.algorithms.twin_critics.learning import ReadingStack, TwinCriticNetwork
from remuda.policy.networks.layouts import PartsLayout
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.torch_networks import RewardScale
from remuda.policy.networks.trunks import PartsTrunk
from remuda.policy.spaces import ActionSpec, ObservationSpec, OutputName


class PortableTwinCritics(Portable):
    """Reads observations as one vector, also with several parts, or by an encoder or convolutions. Values are those of
    the lowest critic."""

    def __init__(
        self,
        network: TwinCriticNetwork,
        observation: ObservationSpec,
        action: ActionSpec,
        output_name: OutputName,
        *,
        noise: float = 0.0,
        rewards: RewardScale | None = None,
    ) -> None:
        """`noise`: standard deviation of the noise in `sample`, for `unit_action`. `rewards`: scale of the values."""
        moments = network.observations
        super().__init__(network, observation, action, output_name, exploration=noise, moments=moments, rewards=rewards)
        as_vector = bool(observation.parts) and not isinstance(network.actor, ReadingStack)
        self._parts = PartsTrunk(PartsLayout.of(observation, None)) if as_vector else None
        if action.is_box:
            box = action.bounded(by=output_name)
            self.register_buffer("box_center", torch.from_numpy(box.center), persistent=False)
            self.register_buffer("box_half", torch.from_numpy(box.half), persistent=False)

    def encoded(self, observation: torch.Tensor) -> torch.Tensor:
        """Same as `flat`, if observations are read as one vector; normalised, if the network does so."""
        encoded: torch.Tensor = super().encoded(observation) if self._parts is None else self._parts(observation)
        assert isinstance(self.network, TwinCriticNetwork)
        moments = self.network.observations
        return encoded if moments is None else moments.normalised(encoded)

    def outputs(self, seen: torch.Tensor) -> torch.Tensor:
        """Outputs for the best actions, or these actions in -1 … 1."""
        assert isinstance(self.network, TwinCriticNetwork)
        return self._in_units(self.network.best(seen))

    def exploring(self, seen: torch.Tensor) -> torch.Tensor:
        return self._in_units(super().outputs(seen))

    def drop_average(self) -> None:
        assert isinstance(self.network, TwinCriticNetwork)
        self.network.averaged_actor = None

    def _in_units(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.tanh() if self.output_name == "unit_action" else outputs

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        """Values of the best action in a Box, or means over counted actions by their probabilities."""
        outputs = self.outputs(seen)
        if self.output_name == "logits":
            assert isinstance(self.network, TwinCriticNetwork)
            return self.in_own_rewards((outputs.softmax(1) * self.network.smaller_value(seen)).sum(1))
        return self.in_own_rewards(self.smaller_value(seen, self._units(outputs)))

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        return super().best(outputs) if self.output_name == "logits" else self._from_units(self._units(outputs))

    def drawn(self, outputs: torch.Tensor) -> torch.Tensor:
        if self.output_name == "logits":
            return super().drawn(outputs)
        if self.output_name == "unit_action":
            return self._from_units((outputs + self.exploration * torch.randn_like(outputs)).clamp(-1.0, 1.0))
        mean, log_std = outputs.chunk(2, dim=1)
        std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp()
        return self._from_units((mean + torch.randn_like(mean) * std).tanh())

    def smaller_value(self, seen: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
        """Minimum of all critics' values [batch] of actions in -1 … 1."""
        assert isinstance(self.network, TwinCriticNetwork)
        return self.network.smaller_value(seen, units).squeeze(1)

    def _units(self, outputs: torch.Tensor) -> torch.Tensor:
        """The best actions in -1 … 1 [batch, k]."""
        return outputs.chunk(2, dim=1)[0].tanh() if self.output_name == "squashed_gaussian" else outputs

    def _from_units(self, units: torch.Tensor) -> torch.Tensor:
        return self.to_environment(units * self.get_buffer("box_half") + self.get_buffer("box_center"))
