"""MuZero's model as perceptrons, for observations that are vectors."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.layers import Representation, head, layers, normalised, perceptron
from remuda.policy.algorithms.muzero.networks import Consistency, FrozenNetwork, MuZeroNetwork
from remuda.policy.algorithms.muzero.scaling import Support

HIDDEN = (128,)
"""Units of the hidden layers between observation and latent state where nobody says otherwise."""


class PerceptronNetwork(MuZeroNetwork):
    """Perceptrons whose layers are followed by layer normalisation and relu.

    The dynamics is one residual block: it says how the latent state changes.
    """

    def __init__(
        self, config: MuZeroConfig, features: int, actions: int, encoder: nn.Module | None = None, *, trains: bool
    ) -> None:
        """`encoder`: gives the features that the representation reads; without it these are the numbers themselves.
        `trains`: see make_network."""
        super().__init__()
        latent, hidden, atoms = config.latent, config.head_hidden, Support(config.support_size).atoms
        self.actions = actions
        first = [] if encoder is None else [encoder]
        self.representation = Representation(*first, *perceptron((features, *(config.hidden or HIDDEN)), latent))
        self.dynamics = perceptron((latent + actions, latent), latent)
        self.reward = head((latent, hidden), atoms)
        self.common = nn.Sequential(*layers((latent, latent)))
        self.value = head((latent, hidden), atoms)
        self.policy = head((latent, hidden), actions)
        self.consistency = Consistency(latent, config) if trains else None

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """See MuZeroNetwork."""
        taken = functional.one_hot(actions, self.actions).to(latent.dtype)
        return normalised(latent + self.dynamics(torch.cat((latent, taken), dim=1)))

    def frozen(self, support: Support) -> FrozenPerceptrons:
        """See MuZeroNetwork."""
        return FrozenPerceptrons(self, support)


class FrozenPerceptrons(FrozenNetwork):
    """Without modules, for the few rows of a search."""

    def __init__(self, network: PerceptronNetwork, support: Support) -> None:
        super().__init__(support, map(_Layers.of, (network.common, network.policy, network.value, network.reward)))
        begins, *others = network.representation
        reads = not isinstance(begins, nn.Linear)
        self._encoder = copy.deepcopy(begins).eval() if reads else None
        self._representation = _Layers.of(nn.Sequential(*others) if reads else network.representation)
        dynamics = _Layers.of(network.dynamics)
        first, latent = dynamics.weights[0], dynamics.weights[0].shape[1] - network.actions
        self._by_latent = first[:, :latent].contiguous()
        self._by_action = (first[:, latent:].t() + dynamics.biases[0]).contiguous()
        """What each action adds to the first layer of the dynamics, its bias included: [actions, units]."""
        self._following = _Layers(dynamics.weights[1:], dynamics.biases[1:], activates_last=False)

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """See MuZeroNetwork: [n, latent]."""
        features = observations if self._encoder is None else self._encoder(observations)
        return normalised(self._representation(features))

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """See MuZeroNetwork."""
        hidden = torch.addmm(self._by_action.index_select(0, actions), latent, self._by_latent.t())
        return normalised(latent + self._following(normalised(hidden).relu_()))


@dataclass(frozen=True)
class _Layers:
    """Fully connected layers with layer normalisation and relu between them."""

    weights: tuple[torch.Tensor, ...]
    """[outputs, inputs] each."""
    biases: tuple[torch.Tensor, ...]
    activates_last: bool

    @classmethod
    def of(cls, modules: nn.Sequential) -> _Layers:
        """Copy linear layers."""
        weights: list[torch.Tensor] = []
        biases: list[torch.Tensor] = []
        for module in modules:
            if isinstance(module, nn.Linear):
                weights.append(module.weight.detach().clone())
                biases.append(module.bias.detach().clone())
        return cls(tuple(weights), tuple(biases), activates_last=isinstance(modules[-1], nn.ReLU))

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden, last = inputs, len(self.weights) - 1
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = functional.linear(hidden, weight, bias)
            if index < last or self.activates_last:
                hidden = normalised(hidden).relu_()
        return hidden
