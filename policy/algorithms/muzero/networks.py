"""What MuZero's networks have in common, whatever they read: the model that is learned, and its consistency."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import nn

from remuda.policy.algorithms.muzero.layers import BatchNorm, Representation, layers

CONSISTENCY = "consistency."
"""Names of the tensors that only training needs begin so."""


@dataclass(frozen=True, kw_only=True)
class NetworkShape:
    """What all networks are built from."""

    actions: int
    head_hidden: int
    """Units of the hidden layer of each head."""
    atoms: int
    """Of the distributions over values and rewards."""
    projection: tuple[int, int] | None = None
    """Units of the projection, and of the hidden layer of its prediction; None without consistency."""


class Prediction(NamedTuple):
    """Policy and value of latent states [n, …]."""

    policy: torch.Tensor
    """Logits [n, actions]."""
    value: torch.Tensor
    """Logits [n, atoms]."""


class LatentModel(Protocol):
    """A model of an environment in latent states (Schrittwieser et al. 2020, section 3). One latent state is a vector
    or an image of several channels; only the model itself knows which."""

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """Latent states [n, …] of encoded observations [n, …]."""
        ...

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The latent states [n, …] that actions, int64 [n], lead to."""
        ...

    def predict(self, latent: torch.Tensor) -> Prediction:
        """Policy and value of latent states."""
        ...

    def rewards(self, latent: torch.Tensor) -> torch.Tensor:
        """Logits [n, atoms] of what the action brought that led to these latent states."""
        ...


class MuZeroNetwork(nn.Module, ABC):
    """A LatentModel that can be learned: its parts are modules.

    Latent states have mean 0 and variance 1, from representation and dynamics alike, so that a search may go deeper
    than training unrolls.
    """

    actions: int
    representation: Representation
    common: nn.Sequential
    """What policy and value read of a latent state."""
    dynamics: nn.Sequential
    """How actions change latent states."""
    policy: nn.Sequential
    value: nn.Sequential
    reward: nn.Sequential
    consistency: Consistency | None

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """See LatentModel."""
        latent: torch.Tensor = self.representation(observations)
        return latent

    @abstractmethod
    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """See LatentModel."""

    def predict(self, latent: torch.Tensor) -> Prediction:
        """See LatentModel."""
        features = self.common(latent)
        return Prediction(self.policy(features), self.value(features))

    def rewards(self, latent: torch.Tensor) -> torch.Tensor:
        """See LatentModel."""
        logits: torch.Tensor = self.reward(latent)
        return logits

    @abstractmethod
    def folded(self) -> LatentModel:
        """The same model outside training, of copies of what it has learned so far: to the digits of float32 it says
        the same, and it is faster. It takes no gradients."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The policy without a search: logits [n, actions] of encoded observations."""
        return self.predict(self.represent(observations)).policy


class Consistency(nn.Module):
    """Whether a latent state that was imagined resembles that of what was seen (Ye et al. 2021, section 4.1).

    Both are projected; from the imagined one's projection the other is predicted, as in SimSiam (Chen and He 2021),
    where the gradient goes one way only, so that they cannot agree on saying nothing. Batch normalisation, as
    SimSiam has it, does no harm here: these heads say nothing outside training.
    """

    def __init__(self, latent: int, units: int, bottleneck: int) -> None:
        """`latent`: the numbers of a latent state."""
        super().__init__()
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
    """Of the angle between rows [n, k] of each: [n]. By lengths and one product it passes over them half as often as
    torch's own function does, which divides rows first."""
    lengths: torch.Tensor = torch.linalg.vector_norm(one, dim=1) * torch.linalg.vector_norm(other, dim=1)
    products: torch.Tensor = (one * other).sum(1)
    return products / lengths.clamp(min=1e-8)
