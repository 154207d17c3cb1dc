"""Common parts of MuZero's networks: layers, values as distributions, the model as it is learned and searched."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.networks.rescaling import scaled, unscaled
from remuda.policy.networks.trunks import is_tracing


class BatchNorm(nn.Module):
    """Batch normalisation (Ioffe and Szegedy 2015) of [n, features]; a batch of one row has no variance and is brought
    to the running scale, as all are outside training."""

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    EPSILON = 1e-5
    MOMENTUM = 0.1
    """Share of the newest batch in the running mean and variance."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Bring each feature to mean 0 and variance 1, then to the scale that was learned."""
        return functional.batch_norm(
            inputs,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training and inputs.shape[0] > 1,
            momentum=self.MOMENTUM,
            eps=self.EPSILON,
        )

    def folded_into(self, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight [outputs, …] and bias [outputs] of a layer that does what a layer followed by this normalisation
        does outside training, where it is a scale and an offset for each output. Both are copies."""
        scale = self.weight.detach() * (self.running_var + self.EPSILON).rsqrt()
        before = torch.zeros_like(self.running_mean) if bias is None else bias.detach()
        scaled = weight.detach() * scale.view(-1, *[1] * (weight.dim() - 1))
        return scaled, (before - self.running_mean) * scale + self.bias.detach()


def normalised(latent: torch.Tensor) -> torch.Tensor:
    """Bring each latent state, or the units of each row, [n, …], to mean 0 and variance 1 (Ba et al. 2016)."""
    if not is_tracing():
        return functional.layer_norm(latent, latent.shape[1:])
    axes = list(range(1, latent.dim()))  # ONNX has no shapes that are known only when it runs
    scaled: torch.Tensor = latent - latent.mean(axes, keepdim=True)
    return scaled * (latent.var(axes, correction=0, keepdim=True) + BatchNorm.EPSILON).rsqrt()


class LayerNorm(nn.Module):
    """`normalised` as a layer. It depends on nothing but its inputs, so a row means the same in training and in a
    search; batch normalisation does not promise that for rows that are rare, as those before the end of an episode are.
    It learns no scale: the layers before and after it do."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[n, …]"""
        return normalised(input)


class Representation(nn.Sequential):
    """Layers whose outputs [n, …] are latent states."""

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
    """Layers as `layers` makes them, and a linear one."""
    return nn.Sequential(*layers(widths), nn.Linear(widths[-1], outputs))


def last_layer(inputs: int, outputs: int) -> nn.Linear:
    """The linear layer that a head ends with. It starts at zero: a uniform policy, and values and rewards of 0."""
    last = nn.Linear(inputs, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return last


def head(widths: Sequence[int], outputs: int) -> nn.Sequential:
    """Layers that read a latent state, and the last."""
    last = last_layer(widths[-1], outputs)  # drawn first: a seed's weights depend on the order
    return nn.Sequential(*layers(widths), last)


class Support:
    """The whole numbers -size … size, each an atom of a distribution over scaled numbers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.atoms = 2 * size + 1
        self._numbers: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def neighbours(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split numbers [n] between two atoms: the index of the lower, int64 [n], and the upper's share [n].

        Numbers are scaled first. Those beyond the support count as its end. `expectation` inverts it.
        """
        position = scaled(numbers).clamp(-self.size, self.size) + self.size
        lower = position.floor().clamp(max=2 * self.size - 1)
        return lower.long(), position - lower

    def cross_entropy(self, logits: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Of distributions by logits [n, atoms] against those of numbers [n]: [n], in nats."""
        lower, share = self.neighbours(numbers)
        both = torch.stack((lower, lower + 1), dim=1)
        lower_log, upper_log = logits.log_softmax(1).gather(1, both).unbind(1)
        return -torch.lerp(lower_log, upper_log, share)

    def expectation(self, logits: torch.Tensor) -> torch.Tensor:
        """The number [n] that distributions by logits [n, atoms] mean."""
        return self.mean(logits.softmax(1))

    def mean(self, distribution: torch.Tensor) -> torch.Tensor:
        """The number [n] that distributions [n, atoms] mean."""
        return unscaled(distribution @ self._atoms(distribution))

    def _atoms(self, like: torch.Tensor) -> torch.Tensor:
        """The atoms on the device and of the type of a tensor."""
        key = like.device, like.dtype
        if key not in self._numbers:
            self._numbers[key] = torch.arange(-self.size, self.size + 1, dtype=like.dtype, device=like.device)
        return self._numbers[key]


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
