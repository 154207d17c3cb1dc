"""MuZero's model as perceptrons, for observations that are vectors."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from remuda.policy.algorithms.muzero.layers import Representation, head, layers, normalised, perceptron
from remuda.policy.algorithms.muzero.networks import Consistency, MuZeroNetwork, NetworkShape, Prediction


@dataclass(frozen=True, kw_only=True)
class PerceptronShape(NetworkShape):
    """What the perceptrons are built from."""

    features: int
    """Numbers of an encoded observation."""
    hidden: tuple[int, ...]
    """Units of each hidden layer between observation and latent state, at least one."""
    latent: int
    """Numbers of a latent state, and units of the hidden layers that read one."""


class PerceptronNetwork(MuZeroNetwork):
    """Perceptrons whose layers are followed by layer normalisation and relu.

    The dynamics is one residual block: it says how the latent state changes.
    """

    def __init__(self, shape: PerceptronShape, encoder: nn.Module | None = None) -> None:
        """`encoder`: gives the features that the representation reads; without it these are the numbers themselves."""
        super().__init__()
        latent, hidden = shape.latent, shape.head_hidden
        self.actions = shape.actions
        first = [] if encoder is None else [encoder]
        self.representation = Representation(*first, *perceptron((shape.features, *shape.hidden), latent))
        self.dynamics = perceptron((latent + shape.actions, latent), latent)
        self.reward = head((latent, hidden), shape.atoms)
        self.common = nn.Sequential(*layers((latent, latent)))
        self.value = head((latent, hidden), shape.atoms)
        self.policy = head((latent, hidden), shape.actions)
        self.consistency = None if shape.projection is None else Consistency(latent, *shape.projection)

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """See LatentModel."""
        taken = functional.one_hot(actions, self.actions).to(latent.dtype)
        return normalised(latent + self.dynamics(torch.cat((latent, taken), dim=1)))

    def folded(self) -> FoldedPerceptrons:
        """See MuZeroNetwork."""
        return FoldedPerceptrons(self)


class FoldedPerceptrons:
    """See MuZeroNetwork.folded. A LatentModel without modules, for the few rows of a search."""

    def __init__(self, network: PerceptronNetwork) -> None:
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
        self._reward, self._common, self._value, self._policy = (
            _Layers.of(part) for part in (network.reward, network.common, network.value, network.policy)
        )

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """See LatentModel: [n, latent]."""
        features = observations if self._encoder is None else self._encoder(observations)
        return normalised(self._representation(features))

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """See LatentModel."""
        hidden = torch.addmm(self._by_action.index_select(0, actions), latent, self._by_latent.t())
        return normalised(latent + self._following(normalised(hidden).relu_()))

    def predict(self, latent: torch.Tensor) -> Prediction:
        """See LatentModel."""
        features = self._common(latent)
        return Prediction(self._policy(features), self._value(features))

    def rewards(self, latent: torch.Tensor) -> torch.Tensor:
        """See LatentModel."""
        return self._reward(latent)


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
