"""The learned model as a search asks for it: layers without modules, and a pool of latent states."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from remuda.policy.algorithms.muzero.networks import BatchNorm, MuZeroNetwork, normalised
from remuda.policy.algorithms.muzero.scaling import Support
from remuda.policy.networks.tensors import to_tensor

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class _Layers:
    """Fully connected layers with relu between them. Batch normalisation, which outside training is a scale and an
    offset for each feature, is part of them."""

    weights: tuple[torch.Tensor, ...]
    """[outputs, inputs] each."""
    biases: tuple[torch.Tensor, ...]
    activates_last: bool

    @classmethod
    def of(cls, modules: nn.Sequential) -> _Layers:
        """Copy linear layers, each with the normalisation that follows it."""
        weights: list[torch.Tensor] = []
        biases: list[torch.Tensor] = []
        for module in modules:
            if isinstance(module, nn.Linear):
                weights.append(module.weight.detach().clone())
                biases.append(module.bias.detach().clone())
            elif isinstance(module, BatchNorm):
                scale = module.weight.detach() * (module.running_var + BatchNorm.EPSILON).rsqrt()
                weights[-1] *= scale[:, None]
                biases[-1] = (biases[-1] - module.running_mean) * scale + module.bias.detach()
        return cls(tuple(weights), tuple(biases), activates_last=isinstance(modules[-1], nn.ReLU))

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden, last = inputs, len(self.weights) - 1
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = functional.linear(hidden, weight, bias)
            if index < last or self.activates_last:
                hidden.relu_()
        return hidden


class FrozenNetwork:
    """A network's weights and running moments of now, which do not change any more: for acting, and as a target.

    It says what MuZeroNetwork says outside training, to the digits of float32, at a fraction of its cost for the few
    rows of a search. Call it under torch.inference_mode or no_grad.
    """

    def __init__(self, network: MuZeroNetwork, support: Support) -> None:
        self.actions = network.actions
        self._support = support
        self._trunk = copy.deepcopy(network.trunk)
        if self._trunk is not None:
            self._trunk.eval().requires_grad_(False)
        self._representation = _Layers.of(network.representation)
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
        """Latent states [n, latent] of encoded observations [n, …]."""
        if self._trunk is not None:
            observations = self._trunk(observations)
        return normalised(self._representation(observations))

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The latent states [n, latent] that actions, int64 [n], lead to."""
        hidden = torch.addmm(self._by_action.index_select(0, actions), latent, self._by_latent.t()).relu_()
        return normalised(latent + self._following(hidden))

    def predict(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities of the actions [n, actions], and values [n] in the environment's own rewards."""
        features = self._common(latent)
        return self._policy(features).softmax(1), self._support.expectation(self._value(features))

    def value(self, observations: torch.Tensor) -> torch.Tensor:
        """Values [n] of encoded observations [n, …]."""
        return self._support.expectation(self._value(self._common(self.represent(observations))))

    def evaluate(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What the action brought, [n], that led to these latent states, and what `predict` says of them."""
        features = self._common(latent)
        means = self._support.expectation(
            torch.cat((self._reward(latent), self._value(features)))
        )  # at once: n is small
        reward, value = means.chunk(2)
        return reward, self._policy(features).softmax(1), value


class SearchedModel:
    """What a search asks of a network; see remuda.policy.algorithms.muzero.search. Latent states stay in one tensor,
    which is kept from one search to the next."""

    def __init__(self, network: FrozenNetwork, device: torch.device) -> None:
        self._network, self._device = network, device
        self._pool = torch.empty(0, 0, 0, device=device)
        """[simulations + 1, n, latent]"""

    def begin(self, observations: np.ndarray, simulations: int) -> tuple[Floats, Floats]:
        """Take the roots of a search, encoded observations [n, …], into the pool as node 0.

        Returns the prior, float32 [n, actions], and the value, float32 [n].
        """
        with torch.inference_mode():
            latent = self._network.represent(to_tensor(observations, self._device))
            size = (simulations + 1, *latent.shape)
            if self._pool.shape != size:
                self._pool = torch.empty(size, device=self._device)
            self._rows = np.arange(len(latent), dtype=np.int64)
            self._pool[0] = latent
            prior, value = self._network.predict(latent)
        return prior.cpu().numpy(), value.cpu().numpy()

    def expand(
        self, parents: NDArray[np.int32], actions: NDArray[np.int64], node: int
    ) -> tuple[Floats, Floats, Floats]:
        """Imagine what each action [n] leads to from the nodes `parents` [n], and keep that as `node`.

        Returns the reward, float32 [n], the prior, float32 [n, actions], and the value, float32 [n].
        """
        with torch.inference_mode():
            rows = to_tensor(parents * np.int64(len(parents)) + self._rows, self._device)
            before = self._pool.view(-1, self._pool.shape[2]).index_select(0, rows)
            latent = self._network.imagine(before, to_tensor(actions, self._device))
            self._pool[node] = latent
            reward, prior, value = self._network.evaluate(latent)
        return reward.cpu().numpy(), prior.cpu().numpy(), value.cpu().numpy()
