"""Networks of several algorithms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remuda.policy.networks.normalisation import CLIP, Moments, running_returns
from remuda.policy.networks.perceptrons import Perceptrons, dueling_values
from remuda.policy.networks.precision import Lowers
from remuda.policy.networks.program import Dense, Dueling, Normalise, Steps
from remuda.policy.networks.reading import Names, steps_of
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.networks.trunks import ConvolutionTrunk, CustomTrunk, lowered
from remuda.policy.ranks import Ranks


class OutputLayer(nn.Linear):
    """The last layer of a network: in the precision of the parameters, even after layers of a lower precision."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[n, inputs] -> [n, outputs]."""
        if not torch.is_autocast_enabled(input.device.type):
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.to(self.weight.dtype))

    def steps(self, names: Names) -> Steps:
        return (Dense(names.of(self.weight), names.maybe(self.bias)),)

    def _get_name(self) -> str:
        return "Linear"  # which it is, in the log


class QNetwork(nn.Module, Lowers):
    """Action values by a multilayer perceptron: float32 [n, features] -> float32 [n, actions].

    A `trunk` comes first: it maps observations [n, …] to features.

    With `dueling` the last hidden layer is doubled, one half for the value of the state and one for the advantages of
    the actions (Wang et al. 2016, equation 9). Both halves are one matrix product. Weights start as in torch:
    orthogonal weights (Saxe et al. 2014) did not solve CartPole sooner over eight seeds.
    """

    def __init__(
        self,
        features: int,
        actions: int,
        hidden: tuple[int, ...],
        *,
        dueling: bool,
        layer_norm: bool = False,
        trunk: nn.Module | None = None,
    ) -> None:
        """With `layer_norm`, each hidden layer is normalised before its activation (Ba et al. 2016)."""
        super().__init__()
        self.trunk = trunk
        self.torso = _layers((features, *hidden[:-1]), nn.ReLU, layer_norm=layer_norm)
        width, before = hidden[-1], (features, *hidden)[-2]
        self.dueling = dueling
        self.streams = _layers((before, 2 * width if dueling else width), nn.ReLU, layer_norm=layer_norm)
        self.advantage = OutputLayer(width, actions)
        self.value = OutputLayer(width, 1) if dueling else None
        self._fused = None if trunk is not None else self._perceptrons()

    def _perceptrons(self) -> Perceptrons | None:
        heads = [self.advantage] if self.value is None else [self.value, self.advantage]
        return Perceptrons.of(heads, (self.torso, self.streams), split=self.dueling, dueling=self.dueling)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Value the actions of each observation."""
        if self._fused is not None and self.training:
            return self._fused(observations)[0]
        with lowered(self, self.trunk):
            return self._values(observations if self.trunk is None else self.trunk(observations))

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: `values` of all actions."""
        head = self.advantage if self.value is None else DuelingHead(self.value, self.advantage)
        return {"values": nn.Sequential(*_present(self.trunk), self.torso, self.streams, head)}

    def _values(self, features: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.streams(self.torso(features))
        values: torch.Tensor = (
            self.advantage(hidden) if self.value is None else DuelingHead(self.value, self.advantage)(hidden)
        )
        return values


class DuelingHead(nn.Module):
    """Action values from a state's value and advantages, each with a half of the inputs."""

    def __init__(self, value: nn.Module, advantage: nn.Module) -> None:
        super().__init__()
        self.value, self.advantage = value, advantage

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[n, inputs] -> [n, actions]."""
        of_state, of_actions = inputs.chunk(2, dim=1)
        return dueling_values(self.value(of_state), self.advantage(of_actions))

    def steps(self, names: Names) -> Steps | None:
        value, advantage = steps_of(self.value, names), steps_of(self.advantage, names)
        return None if value is None or advantage is None else (Dueling(value, advantage),)


class PolicyAndValue(NamedTuple):
    """The modules of an ActorCriticNetwork."""

    trunk: nn.Sequential | None
    """Normalised observations [n, …] -> features for policy and value; None: the observations are the features."""
    policy: nn.Module
    """Features -> float32 [n, outputs]."""
    value: nn.Module
    """Features -> float32 [n, 1]."""

    @classmethod
    def perceptrons(
        cls,
        features: int,
        outputs: int,
        hidden: tuple[int, ...],
        *,
        activation: Literal["tanh", "relu"],
        shared: bool = False,
        trunk: nn.Module | None = None,
    ) -> PolicyAndValue:
        """Make two parallel perceptrons, on the features of a `trunk` if given. With `shared` both are linear in common
        hidden layers.

        Weights start orthogonal (Saxe et al. 2014), those of the policy's last layer small, so the policy begins
        almost uniform: as good as torch's own on CartPole and Pendulum (six and three seeds), and common in the field.
        """
        between = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]
        layers = nn.Sequential()
        if shared:
            layers = _layers((features, *hidden), between)
            features, hidden = (features, *hidden)[-1], ()
        _begin_orthogonal(layers if trunk is None or isinstance(trunk, CustomTrunk) else nn.Sequential(trunk, *layers))
        return cls(
            nn.Sequential(*_present(trunk), *layers) if trunk is not None or len(layers) else None,
            _perceptron(features, outputs, hidden, between=between, gain=0.01),
            _perceptron(features, 1, hidden, between=between, gain=1.0),
        )


class ActorCriticNetwork(nn.Module, Lowers):
    """A policy and a value on normalised observations.

    `numbers`: numbers per observation for the running moments; None for images, which are scaled by their bound. The
    moments are part of the network, so a copy of its state acts the same. `log_std`: initial logarithms of the
    standard deviations of an action's numbers, which are learned; None for counted actions.
    """

    def __init__(
        self, parts: PolicyAndValue, *, log_std: Sequence[float] | None, numbers: int | None, normalizes: bool
    ) -> None:
        super().__init__()
        self.observations = None if numbers is None else RunningMoments(numbers)
        self.trunk, self.policy, self.value = parts
        self.log_std = None if log_std is None else nn.Parameter(torch.tensor(log_std, dtype=torch.float32))
        self.returns = RunningMoments(1)
        self.normalizes = normalizes
        shared_layers = () if self.trunk is None else (self.trunk,)
        self._fused = Perceptrons.of([self.policy, self.value], shared_layers, value_last=True)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The policy's outputs [n, outputs], logits or means, for observations [n, …] of the environment."""
        outputs: torch.Tensor = self.policy(self.features(self.normalised(observations)))
        return outputs

    def normalised(self, observations: torch.Tensor) -> torch.Tensor:
        """Normalise observations [n, features] to float32; float64 inputs stay float64 until the mean is subtracted.
        Images stay unchanged."""
        if self.observations is None or not self.normalizes:
            return observations
        return self.observations.normalised(observations)

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: the outputs of the `policy`, and the `value`."""
        shared = _present(self.observations if self.normalizes else None, self.trunk)
        return {"policy": nn.Sequential(*shared, self.policy), "value": nn.Sequential(*shared, self.value)}

    def evaluate(self, normalised: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the policy's outputs [n, outputs] and the values [n] of normalised observations [n, …]."""
        if self._fused is not None and self.training:
            policy, values = self._fused(normalised)
            return policy, values
        with lowered(self, self._images):
            features = self.features(normalised)
            return self.policy(features), self.value(features).squeeze(1)

    @torch.no_grad()
    def values(self, normalised: torch.Tensor) -> torch.Tensor:
        """Compute the values [n] of normalised observations [n, …], without a graph."""
        if self._fused is not None and self.training:
            return self._fused.head(1, normalised).squeeze(1)
        with lowered(self, self._images):
            values: torch.Tensor = self.value(self.features(normalised))
        return values.squeeze(1)

    def prepared(self, normalised: torch.Tensor) -> torch.Tensor:
        """Convert observations [n, …] to the fastest form for the other methods. All methods accept both forms."""
        images = self._images
        return images.folded(normalised) if isinstance(images, ConvolutionTrunk) else normalised

    @property
    def _images(self) -> nn.Module | None:
        return None if self.trunk is None else next(iter(self.trunk))

    def features(self, normalised: torch.Tensor) -> torch.Tensor:
        """Inputs of policy and value: normalised observations, or the outputs of shared layers."""
        if self.trunk is None:
            return normalised
        features: torch.Tensor = self.trunk(normalised)
        return features


class RunningMoments(nn.Module):
    """Moments as part of a network's state: float64 buffers, empty at first."""

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64))

    def normalised(self, numbers: torch.Tensor) -> torch.Tensor:
        """Normalise numbers [n, size] to mean 0 and standard deviation 1, clipped, as float32. float64 inputs stay
        float64 until the mean is subtracted."""
        mean, scale = self.mean, (self.variance + Moments.EPSILON).rsqrt()
        exact = numbers.dtype
        return ((numbers - mean.to(exact)) * scale.to(exact)).clamp(-CLIP, CLIP).float()

    forward = normalised

    def steps(self, names: Names) -> Steps:
        return (Normalise(names.of(self.mean), names.of(self.variance)),)

    def load(self) -> Moments:
        """Copy the moments to the host."""
        numbers = torch.cat((self.mean, self.variance, self.count)).cpu().numpy()  # one transfer
        mean, variance, count = np.split(numbers, [len(self.mean), -1])
        return Moments(mean, variance, float(count[0]))

    def store(self, moments: Moments) -> None:
        """Copy moments of the same size into these."""
        self.mean.copy_(to_tensor(moments.mean, self.mean.device))
        self.variance.copy_(to_tensor(moments.variance, self.mean.device))
        self.count.fill_(moments.count)


RECENT_ROWS = 100_000.0
"""Replayed rows whose returns count fully; older rows count less and less."""
LONGEST_RETURN_ROWS = 1000
"""Limit of the rows in a return, for a discount of 1."""


class RewardScale:
    """Divides rewards by a standard deviation so far, clipped at 10; its moments lie in a network's buffers."""

    def __init__(self, moments: RunningMoments) -> None:
        """`moments`: of one number, in the network."""
        self._stored = moments
        self.read()

    def read(self) -> None:
        """Read the moments again, after the network was loaded."""
        self._moments = self._stored.load()

    @property
    def std(self) -> float:
        """The divisor."""
        return 1.0 / float(self._moments.scale[0])

    def of_segments(self, ranks: Ranks, batch: Mapping[str, np.ndarray], *, discount: float) -> NDArray[np.float32]:
        """Divide the rewards [B, T] of segments by the standard deviation of the discounted returns of all segments so
        far, including these."""
        rewards = (batch["reward"], batch["done"], batch["valid"], batch["return_so_far"])
        returns = running_returns(*rewards, discount=discount)
        return self._scaled(batch["reward"], Moments.of_all(ranks, returns[:, None]))

    def of_rows(self, ranks: Ranks, batch: Mapping[str, np.ndarray]) -> NDArray[np.float32]:
        """Divide the rewards [n] of replayed rows by the root mean square of all rewards so far, including these:
        replayed rows have no returns."""
        rewards = Moments.of_all(ranks, batch["reward"][:, None])
        return self._scaled(batch["reward"], Moments(np.zeros(1), rewards.variance + rewards.mean**2, rewards.count))

    def of_returns(self, ranks: Ranks, batch: Mapping[str, np.ndarray]) -> NDArray[np.float32]:
        """Divide the rewards [n] of replayed rows by the root mean square of the discounted returns after recent rows,
        as if the rewards of rows did not depend on each other.

        For rewards with mean m and variance v, and a mean discount d (0 where an episode terminated), returns have the
        mean m / (1 - d) and the variance v / (1 - d * d). Newer rows count more: returns grow while a policy learns.
        """
        rows = Moments.of_all(ranks, np.stack([batch["reward"], batch["discount"]], axis=1))
        kept = min(float(rows.mean[1]), 1.0 - 1.0 / LONGEST_RETURN_ROWS)
        square = rows.variance[:1] / (1.0 - kept * kept) + (rows.mean[:1] / (1.0 - kept)) ** 2
        self._moments = replace(self._moments, count=min(self._moments.count, RECENT_ROWS))
        return self._scaled(batch["reward"], Moments(np.zeros(1), square, rows.count))

    def _scaled(self, reward: NDArray[np.float32], added: Moments) -> NDArray[np.float32]:
        self._moments = self._moments.joined(added)
        self._stored.store(self._moments)
        scaled: NDArray[np.float32] = (reward * self._moments.scale[0]).clip(-CLIP, CLIP).astype(np.float32)
        return scaled


def _present(*modules: nn.Module | None) -> list[nn.Module]:
    return [module for module in modules if module is not None]


def _layers(widths: tuple[int, ...], between: type[nn.Module], *, layer_norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        norm = [nn.LayerNorm(outputs)] if layer_norm else []
        layers += [nn.Linear(inputs, outputs), *norm, between()]
    return nn.Sequential(*layers)


def _perceptron(
    features: int, outputs: int, hidden: tuple[int, ...], *, between: type[nn.Module], gain: float
) -> nn.Sequential:
    widths = (features, *hidden)
    network = nn.Sequential(*_layers(widths, between), OutputLayer(widths[-1], outputs))
    _begin_orthogonal(network, last_gain=gain)
    return network


def _begin_orthogonal(network: nn.Module, *, last_gain: float = math.sqrt(2)) -> None:
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight, last_gain if layer is layers[-1] else math.sqrt(2))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
