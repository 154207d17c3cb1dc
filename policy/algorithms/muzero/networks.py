"""What MuZero's networks have in common, whatever they read: the model as it is learned, and as it is searched."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import nn

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.layers import BatchNorm, Representation, layers
from remuda.policy.algorithms.muzero.scaling import Support

CONSISTENCY = "consistency."
"""Names of the tensors that only training needs begin so."""


class Prediction(NamedTuple):
    """Policy and value of latent states [n, …]."""

    policy: torch.Tensor
    """Logits [n, actions]."""
    value: torch.Tensor
    """Logits [n, atoms]."""


class MuZeroNetwork(nn.Module, ABC):
    """A model of an environment in latent states (Schrittwieser et al. 2020, section 3). One latent state is a vector
    or an image of several channels; only the model itself knows which.

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
        """Latent states [n, …] of encoded observations [n, …]."""
        latent: torch.Tensor = self.representation(observations)
        return latent

    @abstractmethod
    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The latent states [n, …] that actions, int64 [n], lead to."""

    def predict(self, latent: torch.Tensor) -> Prediction:
        """Policy and value of latent states."""
        features = self.common(latent)
        return Prediction(self.policy(features), self.value(features))

    def rewards(self, latent: torch.Tensor) -> torch.Tensor:
        """Logits [n, atoms] of what the action brought that led to these latent states."""
        logits: torch.Tensor = self.reward(latent)
        return logits

    @abstractmethod
    def frozen(self, support: Support) -> FrozenNetwork:
        """Copy the weights for searches. `support` has the values that distributions of returns are over."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The policy without a search: logits [n, actions] of encoded observations."""
        return self.predict(self.represent(observations)).policy


class FrozenNetwork(ABC):
    """A network as it is now, whatever is learned afterwards: for acting, and as a target. To the digits of float32 it
    says what the network says outside training, and it is faster.

    Answers are probabilities, and numbers of the environment's own rewards. Call it under torch.inference_mode or
    no_grad.
    """

    def __init__(self, support: Support, parts: Iterable[Callable[[torch.Tensor], torch.Tensor]]) -> None:
        """`parts`: what computes `common`, `policy`, `value` and `reward` of a MuZeroNetwork."""
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
        """What the action brought, [n], that led to these latent states, and what `predict` says of them."""
        features = self._common(latent)
        logits = torch.cat((self._reward(latent), self._value(features)))  # at once: n is small
        reward, value = self._support.expectation(logits).chunk(2)
        return reward, self._policy(features).softmax(1), value


class Consistency(nn.Module):
    """Whether a latent state that was imagined resembles that of what was seen (Ye et al. 2021, section 4.1).

    Both are projected; from the imagined one's projection the other is predicted, as in SimSiam (Chen and He 2021),
    where the gradient goes one way only, so that they cannot agree on saying nothing. Batch normalisation, as
    SimSiam has it, does no harm here: these heads say nothing outside training.
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
    """Of the angle between rows [n, k] of each: [n]. By lengths and one product it passes over them half as often as
    torch's own function does, which divides rows first."""
    lengths: torch.Tensor = torch.linalg.vector_norm(one, dim=1) * torch.linalg.vector_norm(other, dim=1)
    products: torch.Tensor = (one * other).sum(1)
    return products / lengths.clamp(min=1e-8)
