"""Rainbow's network: distributions of returns by dueling streams of noisy layers."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.policy.algorithms.q_policy import hidden_layers, number_of_actions
from remuda.policy.networks.custom_encoder import reads
from remuda.policy.networks.custom_network import CustomValues
from remuda.policy.networks.precision import Lowers
from remuda.policy.networks.trunks import lowered
from remuda.policy.spaces import ActionSpec, ObservationSpec

HIDDEN = (128, 128)
"""Units of the hidden layers where nobody says otherwise."""

Noise = Callable[[torch.Tensor], torch.Tensor] | None
"""Draws normal numbers of a tensor's shape, where that is, for noisy layers; None: no noise."""


class NoisyLinear(nn.Module):
    """A fully connected layer whose weights have learned noise (Fortunato et al. 2018, factorised)."""

    def __init__(self, inputs: int, outputs: int, sigma: float) -> None:
        """`sigma` is the size of the noise at first, relative to that of the weights."""
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma * bound))

    def forward(self, inputs: torch.Tensor, noise: Noise = None) -> torch.Tensor:
        """[n, inputs] -> [n, outputs], all rows with the same noise."""
        if noise is None:
            return functional.linear(inputs, self.weight, self.bias)
        of_inputs, of_outputs = (_shaped(noise(like)) for like in (self.weight[0], self.bias))
        weight = torch.addcmul(self.weight, self.weight_sigma * of_outputs.unsqueeze(1), of_inputs)
        return functional.linear(inputs, weight, torch.addcmul(self.bias, self.bias_sigma, of_outputs))

    @torch.no_grad()
    def relative_sigma(self) -> torch.Tensor:
        """The mean size of the weights' noise as `sigma` gives it, which it is at first."""
        size: torch.Tensor = torch.linalg.vector_norm(self.weight_sigma, ord=1)
        return size * (math.sqrt(self.weight.shape[1]) / self.weight.numel())


def _shaped(drawn: torch.Tensor) -> torch.Tensor:
    return drawn.sign() * drawn.abs().sqrt()


class RainbowNetwork(nn.Module, Lowers):
    """Encoded observations [n, …] -> float32 [n, actions, atoms].

    Layers before the streams are plain; each stream has a hidden layer and a last one, noisy if `noisy_sigma` is given.
    """

    def __init__(
        self,
        features: int,
        actions: int,
        atoms: int,
        hidden: tuple[int, ...],
        *,
        dueling: bool,
        noisy_sigma: float | None,
        trunk: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self._actions, self._atoms = actions, atoms
        self.trunk = trunk
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise((features, *hidden[:-1])):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.torso = nn.Sequential(*layers)
        width, before = hidden[-1], (features, *hidden)[-2]
        self.streams = _layer(before, 2 * width if dueling else width, noisy_sigma)
        self.advantage = _layer(width, actions * atoms, noisy_sigma)
        self.value = _layer(width, atoms, noisy_sigma) if dueling else None

    def forward(self, observations: torch.Tensor, noise: Noise = None) -> torch.Tensor:
        """What the distribution of returns is, of each action; see ReturnDistribution."""
        with lowered(self, self.trunk):
            hidden = observations if self.trunk is None else self.trunk(observations)
            hidden = torch.relu(_apply(self.streams, self.torso(hidden), noise))
        with torch.autocast(hidden.device.type, enabled=False):  # the last layers are float32 always
            return self._outputs(hidden.float(), noise)

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: the `features` that the streams read. Those are noisy."""
        return {"features": nn.Sequential(*([] if self.trunk is None else [self.trunk]), self.torso)}

    def relative_sigma(self) -> torch.Tensor:
        """The mean of that of its noisy layers; it has some."""
        layers = (self.streams, self.advantage, self.value)
        return torch.stack([layer.relative_sigma() for layer in layers if isinstance(layer, NoisyLinear)]).mean()

    def _outputs(self, hidden: torch.Tensor, noise: Noise) -> torch.Tensor:
        if self.value is None:
            return _apply(self.advantage, hidden, noise).view(-1, self._actions, self._atoms)
        of_state, of_actions = hidden.chunk(2, dim=1)
        advantage = _apply(self.advantage, of_actions, noise).view(-1, self._actions, self._atoms)
        value = _apply(self.value, of_state, noise).unsqueeze(1)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


def _layer(inputs: int, outputs: int, noisy_sigma: float | None) -> nn.Linear | NoisyLinear:
    return nn.Linear(inputs, outputs) if noisy_sigma is None else NoisyLinear(inputs, outputs, noisy_sigma)


def _apply(layer: nn.Linear | NoisyLinear, inputs: torch.Tensor, noise: Noise) -> torch.Tensor:
    outputs: torch.Tensor = layer(inputs, noise) if isinstance(layer, NoisyLinear) else layer(inputs)
    return outputs


def make_network(
    config: RainbowConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> nn.Module:
    """See remuda.policy.algorithms.dqn.network."""
    actions = number_of_actions(config, action)
    if config.network is not None:
        return CustomValues(config, observation, action, source_dir, shape=(actions, config.atoms), output="features")
    hidden = hidden_layers(config, observation, default=HIDDEN)
    trunk, features = reads(config, observation, source_dir)
    return RainbowNetwork(
        features,
        actions,
        config.atoms,
        hidden,
        dueling=config.dueling,
        noisy_sigma=config.noisy_sigma if config.noisy else None,
        trunk=trunk,
    )
