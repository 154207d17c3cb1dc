"""Common parts of MuZero's networks: layers, distributions of values, and the model for learning and for searches."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.networks.batch_norm import BatchNorm
from remuda.policy.networks.tensors import scaled, unscaled
from remuda.policy.networks.trunks import is_tracing


def normalised(latent: torch.Tensor) -> torch.Tensor:
    """Scale each latent state, or the units of each row, [n, …], to mean 0 and variance 1 (Ba et al. 2016)."""
    if not is_tracing():
        return functional.layer_norm(latent, latent.shape[1:])
    axes = list(range(1, latent.dim()))  # ONNX has no shapes that are known only when it runs
    scaled: torch.Tensor = latent - latent.mean(axes, keepdim=True)
    return scaled * (latent.var(axes, correction=0, keepdim=True) + 1e-5).rsqrt()


class LayerNorm(nn.Module):
    """`normalised` as a layer. It depends only on its inputs, so a row has the same result in training and in a search.
    Batch normalisation does not guarantee that for rare rows, for instance before the end of an episode. No scale is
    learned: the layers before and after do that."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[n, …]"""
        return normalised(input)


class Representation(nn.Sequential):
    """Layers with latent states as outputs [n, …]."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Latent states of encoded observations [n, …]."""
        for layer in self:
            input = layer(input)
        return normalised(input)


def layers(widths: Sequence[int], *, batch: bool = False) -> list[nn.Module]:
    """Fully connected layers, each followed by layer normalisation (with `batch`: batch normalisation) and relu."""
    made: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        made += [nn.Linear(inputs, outputs), BatchNorm(outputs) if batch else LayerNorm(), nn.ReLU()]
    return made


def perceptron(widths: Sequence[int], outputs: int) -> nn.Sequential:
    """`layers`, followed by a linear layer."""
    return nn.Sequential(*layers(widths), nn.Linear(widths[-1], outputs))


def last_layer(inputs: int, outputs: int) -> nn.Linear:
    """Last linear layer of a head. It starts at zero: a uniform policy, and values and rewards of 0."""
    last = nn.Linear(inputs, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return last


def head(widths: Sequence[int], outputs: int) -> nn.Sequential:
    """`layers` on a latent state, and the last layer."""
    last = last_layer(widths[-1], outputs)  # drawn first: a seed's weights depend on the order
    return nn.Sequential(*layers(widths), last)


class Support:
    """The integers -size … size as atoms of a distribution over scaled numbers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.atoms = 2 * size + 1
        self._numbers: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def neighbours(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split numbers [n] between two atoms: index of the lower atom, int64 [n], and share of the upper atom [n].

        Numbers are scaled first, and clipped to the support. `expectation` is the inverse.
        """
        position = scaled(numbers).clamp(-self.size, self.size) + self.size
        lower = position.floor().clamp(max=2 * self.size - 1)
        return lower.long(), position - lower

    def cross_entropy(self, logits: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Cross entropy in nats, [n], of distributions by logits [n, atoms] against numbers [n]."""
        lower, share = self.neighbours(numbers)
        both = torch.stack((lower, lower + 1), dim=1)
        lower_log, upper_log = logits.log_softmax(1).gather(1, both).unbind(1)
        return -torch.lerp(lower_log, upper_log, share)

    def expectation(self, logits: torch.Tensor) -> torch.Tensor:
        """Numbers [n] represented by logits [n, atoms]."""
        return self.mean(logits.softmax(1))

    def mean(self, distribution: torch.Tensor) -> torch.Tensor:
        """Numbers [n] represented by distributions [n, atoms]."""
        return unscaled(distribution @ self._atoms(distribution))

    def _atoms(self, like: torch.Tensor) -> torch.Tensor:
        """The atoms on the device and of the type of a tensor."""
        key = like.device, like.dtype
        if key not in self._numbers:
            self._numbers[key] = torch.arange(-self.size, self.size + 1, dtype=like.dtype, device=like.device)
        return self._numbers[key]


CONSISTENCY = "consistency."
"""Prefix of the names of tensors that only training needs."""


class Prediction(NamedTuple):
    """Policy and value of latent states [n, …]."""

    policy: torch.Tensor
    """Logits [n, actions]."""
    value: torch.Tensor
    """Logits [n, atoms]."""


class MuZeroNetwork(nn.Module, ABC):
    """A model of an environment in latent states (Schrittwieser et al. 2020, section 3). A latent state is a vector, or
    an image of several channels; only the subclass knows the shape.

    Representation and dynamics both give latent states with mean 0 and variance 1, so a search may go deeper than
    training unrolls.
    """

    actions: int
    representation: Representation
    common: nn.Sequential
    """Layers on a latent state before policy and value."""
    dynamics: nn.Sequential
    """Layers that change latent states by actions."""
    policy: nn.Sequential
    value: nn.Sequential
    reward: nn.Sequential
    consistency: Consistency | None

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """Latent states [n, …] of encoded observations [n, …]."""
        latent: torch.Tensor = self.representation(observations)
        return latent

    @abstractmethod
    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Compute the latent states [n, …] after actions, int64 [n]."""

    def predict(self, latent: torch.Tensor) -> Prediction:
        """Policy and value of latent states."""
        features = self.common(latent)
        return Prediction(self.policy(features), self.value(features))

    def rewards(self, latent: torch.Tensor) -> torch.Tensor:
        """Logits [n, atoms] of the rewards of the actions before these latent states."""
        logits: torch.Tensor = self.reward(latent)
        return logits

    @abstractmethod
    def frozen(self, support: Support) -> FrozenNetwork:
        """Copy the weights for searches. `support` has the atoms of the distributions of returns."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The policy without a search: logits [n, actions] of encoded observations."""
        return self.predict(self.represent(observations)).policy


class FrozenNetwork(ABC):
    """A copy of a network's present weights, for acting and as a target. To float32 precision it computes the same as
    the network outside training, but faster.

    Outputs are probabilities, and values and rewards on the environment's scale. Call it under torch.inference_mode or
    no_grad.
    """

    def __init__(self, support: Support, parts: Iterable[Callable[[torch.Tensor], torch.Tensor]]) -> None:
        """`parts`: functions for `common`, `policy`, `value` and `reward` of a MuZeroNetwork."""
        self._support = support
        self._common, self._policy, self._value, self._reward = parts

    @abstractmethod
    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """See MuZeroNetwork."""

    @abstractmethod
    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """See MuZeroNetwork."""

    def predict(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities of the actions [n, actions], and values [n]."""
        features = self._common(latent)
        return self._policy(features).softmax(1), self._support.expectation(self._value(features))

    def value(self, observations: torch.Tensor) -> torch.Tensor:
        """Values [n] of encoded observations [n, …]."""
        return self._support.expectation(self._value(self._common(self.represent(observations))))

    def evaluate(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rewards [n] of the actions before these latent states, and the outputs of `predict`."""
        features = self._common(latent)
        logits = torch.cat((self._reward(latent), self._value(features)))  # at once: n is small
        reward, value = self._support.expectation(logits).chunk(2)
        return reward, self._policy(features).softmax(1), value


class Consistency(nn.Module):
    """Similarity of imagined and seen latent states (Ye et al. 2021, section 4.1).

    Projects both; predicts the projection of the seen state from the imagined state's, as in SimSiam (Chen and He
    2021), without gradients to the seen state, so the two cannot collapse to a constant. Batch normalisation, as
    in SimSiam, is harmless: these heads are not used outside training.
    """

    def __init__(self, latent: int, config: MuZeroConfig) -> None:
        """`latent`: the numbers of a latent state."""
        super().__init__()
        units, bottleneck = config.projection_units, config.projection_bottleneck
        self.projection = nn.Sequential(
            *layers((latent, units, units), batch=True), nn.Linear(units, units), BatchNorm(units)
        )
        self.prediction = nn.Sequential(*layers((units, bottleneck), batch=True), nn.Linear(bottleneck, units))

    def forward(self, imagined: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Cosine of the angle between the two latent states [n, …], [n]; no gradient goes to the states `seen`."""
        with torch.no_grad():
            target = self.projection(seen.flatten(1))
        predicted = self.prediction(self.projection(imagined.flatten(1)))
        with torch.autocast(imagined.device.type, enabled=False):  # sums of products are not
            return cosine(predicted.to(imagined.dtype), target.to(imagined.dtype))


def cosine(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Cosine [n] of the angle between rows [n, k]. One product is divided by both lengths: this reads the rows half as
    often as torch's function, which divides the rows first."""
    lengths: torch.Tensor = torch.linalg.vector_norm(one, dim=1) * torch.linalg.vector_norm(other, dim=1)
    products: torch.Tensor = (one * other).sum(1)
    return products / lengths.clamp(min=1e-8)
