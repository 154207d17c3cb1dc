"""MuZero's models: perceptrons for vectors, residual convolutions for images."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.networks import (
    Consistency,
    FrozenNetwork,
    MuZeroNetwork,
    Representation,
    Support,
    head,
    last_layer,
    layers,
    normalised,
    perceptron,
)
from remuda.policy.networks.batch_norm import BatchNorm
from remuda.policy.networks.layouts import Pixels
from remuda.policy.networks.trunks import as_channels

HIDDEN = (128,)
"""Default units of the hidden layers between observation and latent state."""


class PerceptronNetwork(MuZeroNetwork):
    """Perceptrons with layer normalisation and relu.

    The dynamics is one residual block: it gives the change of the latent state.
    """

    def __init__(
        self, config: MuZeroConfig, features: int, actions: int, encoder: nn.Module | None = None, *, trains: bool
    ) -> None:
        """`encoder`: gives the features for the representation; None: the numbers of the observation. `trains`: see
        make_network."""
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
        taken = functional.one_hot(actions, self.actions).to(latent.dtype)
        return normalised(latent + self.dynamics(torch.cat((latent, taken), dim=1)))

    def frozen(self, support: Support) -> FrozenPerceptrons:
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
        """Contribution of each action to the first layer of the dynamics, including the bias: [actions, units]."""
        self._following = _Layers(dynamics.weights[1:], dynamics.biases[1:], activates_last=False)

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """See MuZeroNetwork: [n, latent]."""
        features = observations if self._encoder is None else self._encoder(observations)
        return normalised(self._representation(features))

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        hidden = torch.addmm(self._by_action.index_select(0, actions), latent, self._by_latent.t())
        return normalised(latent + self._following(normalised(hidden).relu_()))


@dataclass(frozen=True)
class _Layers:
    """Fully connected layers with layer normalisation and relu between them."""

    weights: tuple[torch.Tensor, ...]
    """[outputs, inputs] per layer."""
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


Precision = Literal["float32", "bfloat16"]

LARGEST_SIDE = 8
"""Images are halved until neither side of a latent state is longer."""
HEAD_CHANNELS = 16
"""Channels of a latent state in the heads, before their perceptrons (Ye et al. 2021)."""
_IMAGES_AT_ONCE = 32
"""Images per call. On a CPU, many images of 84x84 pixels at once take 1.6 times as long, in lower
precision 1.3 times."""


def halvings(pixels: Pixels) -> int:
    """Number of halvings of an image in the representation."""
    times, side = 0, max(pixels.height, pixels.width)
    while side > LARGEST_SIDE:
        times, side = times + 1, (side + 1) // 2
    return times


def latent_size(pixels: Pixels) -> tuple[int, int]:
    """Height and width of a latent state."""
    height, width = pixels.height, pixels.width
    for _ in range(halvings(pixels)):
        height, width = (height + 1) // 2, (width + 1) // 2
    return height, width


class ConvolutionNetwork(MuZeroNetwork):
    """EfficientZero's network for Atari (Ye et al. 2021, appendix A.1), without the value prefix.

    The representation halves images, for instance 96 or 84 pixels to 6: by a convolution, by a residual block, then by
    average pooling, with a residual block after each. The dynamics reads the latent state and a plane per action: ones
    for the chosen action, zeros for the others. Convolutions are followed by batch normalisation and relu, the dense
    layers of the heads by layer normalisation. A latent state is normalised over all its numbers, as in perceptrons;
    MuZero scales it to 0 … 1 for the same purpose (appendix G).
    """

    def __init__(self, config: MuZeroConfig, pixels: Pixels, actions: int, *, trains: bool) -> None:
        """`trains`: see make_network."""
        super().__init__()
        channels, (height, width) = config.channels, latent_size(pixels)
        self.actions, self.latent = actions, (channels, height, width)
        self.precision: Precision = config.precision
        blocks, hidden, cells = config.residual_blocks, config.head_hidden, height * width
        atoms = Support(config.support_size).atoms
        halved = Convolutions(*_halving(pixels, channels), *_blocks(channels, blocks), precision=config.precision)
        self.representation = Representation(Images(pixels), halved)
        step = Step(channels, actions)
        self.dynamics = Convolutions(step, *_blocks(channels, blocks), precision=config.precision)
        self.common = Convolutions(*_blocks(channels, blocks), precision=config.precision)
        self.reward = _head(channels, cells, hidden, atoms)
        self.value = _head(channels, cells, hidden, atoms)
        self.policy = _head(channels, cells, hidden, actions)
        self.consistency = Consistency(channels * cells, config) if trains else None

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        planes = functional.one_hot(actions, self.actions).to(latent.dtype)[:, :, None, None]
        both = torch.cat((latent, planes.expand(-1, -1, *latent.shape[2:])), dim=1)
        return normalised(self.dynamics(both))

    def frozen(self, support: Support) -> FrozenConvolutions:
        return FrozenConvolutions(self, support)


class FrozenConvolutions(FrozenNetwork):
    """Computes the part of the dynamics that depends only on the action once. Normalisation is folded into the layers
    before it.

    Images are read in the network's lower precision, if it has one; all later layers are float32.
    """

    def __init__(self, network: ConvolutionNetwork, support: Support) -> None:
        parts = (network.common, network.policy, network.value, network.reward)
        super().__init__(support, (nn.Sequential(*_folded(part)) for part in parts))
        images, *halved = _folded(network.representation)
        self._images, self._halved = images, Convolutions(*halved, precision=network.precision)
        step, *blocks = network.dynamics
        assert isinstance(step, Step)
        channels, height, width = network.latent
        weight, bias = step.norm.folded_into(step.convolution.weight, None)
        self._by_latent = weight[:, :channels].contiguous(memory_format=torch.channels_last)
        planes = torch.eye(network.actions, device=weight.device)[:, :, None, None].expand(-1, -1, height, width)
        self._by_action = functional.conv2d(planes.to(weight.dtype), weight[:, channels:], bias, padding=1)
        """Contribution of each action to the first convolution of the dynamics, including the bias: [actions, channels,
        height, width]."""
        self._following = nn.Sequential(*_folded(nn.Sequential(*blocks)))

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """See MuZeroNetwork: [n, channels, height, width]."""
        parts = torch.split(observations, _IMAGES_AT_ONCE)
        return normalised(torch.cat([self._halved(self._images(part)) for part in parts]))

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        hidden = functional.conv2d(latent, self._by_latent, padding=1)
        hidden.add_(latent).add_(self._by_action.index_select(0, actions)).relu_()
        return normalised(self._following(hidden))


class Images(nn.Module):
    """Brings encoded images [n, …] to float32 [n, channels, height, width]."""

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        self._pixels = pixels

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Channels last in memory: fastest for convolutions on a processor."""
        return as_channels(images, self._pixels).contiguous(memory_format=torch.channels_last)


class Convolutions(nn.Sequential):
    """Layers with a chosen precision during training."""

    def __init__(self, *layers: nn.Module, precision: Precision) -> None:
        super().__init__(*layers)
        self._lower = precision == "bfloat16"

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """From float32 to float32, [n, channels, height, width]."""
        with torch.autocast(input.device.type, torch.bfloat16, enabled=self._lower and self.training):
            outputs = input
            for layer in self:
                outputs = layer(outputs)
        return outputs.to(input.dtype)


class Residual(nn.Module):
    """A residual block (He et al. 2016), followed by relu."""

    def __init__(self, layers: nn.Sequential, shortcut: nn.Conv2d | None = None) -> None:
        """`shortcut` brings the input to the shape of the output, if the shapes differ."""
        super().__init__()
        self.layers, self.shortcut, self.activation = layers, shortcut, nn.ReLU(inplace=True)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[n, channels, height, width]."""
        before = input if self.shortcut is None else self.shortcut(input)
        outputs: torch.Tensor = self.activation(self.layers(input).add_(before))  # in place: memory is what costs
        return outputs


class Step(nn.Module):
    """First layer of the dynamics: changes a latent state by an action."""

    def __init__(self, channels: int, actions: int) -> None:
        super().__init__()
        self.convolution, self.norm = _convolution(channels + actions, channels), BatchNorm(channels)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[n, channels + actions, height, width] -> [n, channels, height, width]."""
        change: torch.Tensor = self.norm(self.convolution(input))
        outputs: torch.Tensor = self.activation(change.add_(input[:, : change.shape[1]]))
        return outputs


def _halving(pixels: Pixels, channels: int) -> list[nn.Module]:
    """Layers that halve images repeatedly, rounding up."""
    times = halvings(pixels)
    narrow = max(1, channels // 2) if times > 1 else channels
    stem = _convolution(pixels.channels, narrow, stride=2 if times else 1)
    made: list[nn.Module] = [stem, BatchNorm(narrow), nn.ReLU(inplace=True)]
    if times > 1:
        made += [_residual(narrow, narrow), _residual(narrow, channels, stride=2)]
    for _ in range(times - 2):
        made += [_residual(channels, channels), nn.AvgPool2d(3, stride=2, padding=1)]
    return made


def _blocks(channels: int, count: int) -> list[nn.Module]:
    return [_residual(channels, channels) for _ in range(count)]


def _residual(inputs: int, outputs: int, *, stride: int = 1) -> Residual:
    first, second = _convolution(inputs, outputs, stride=stride), _convolution(outputs, outputs)
    shortcut = _convolution(inputs, outputs, stride=stride) if stride > 1 else None
    return Residual(
        nn.Sequential(first, BatchNorm(outputs), nn.ReLU(inplace=True), second, BatchNorm(outputs)), shortcut
    )


def _convolution(inputs: int, outputs: int, *, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, which the following normalisation would remove."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def _head(channels: int, cells: int, hidden: int, outputs: int) -> nn.Sequential:
    """A head on single cells of a latent state, then on all cells."""
    few = HEAD_CHANNELS
    narrowed = [nn.Conv2d(channels, few, 1, bias=False), BatchNorm(few), nn.ReLU(inplace=True), nn.Flatten()]
    return nn.Sequential(*narrowed, *layers((few * cells, hidden)), last_layer(hidden, outputs))


def _folded(modules: nn.Sequential) -> list[nn.Module]:
    """Copy layers, with following normalisation folded into them."""
    made: list[nn.Module] = []
    for module in modules:
        if isinstance(module, BatchNorm):
            before = made[-1]
            assert isinstance(before, nn.Conv2d | nn.Linear)
            weight, bias = module.folded_into(before.weight, before.bias)
            before.weight, before.bias = (nn.Parameter(part, requires_grad=False) for part in (weight, bias))
        elif isinstance(module, Residual):
            made.append(Residual(nn.Sequential(*_folded(module.layers)), copy.deepcopy(module.shortcut)))
        elif isinstance(module, nn.Sequential):
            made += _folded(module)
        else:
            made.append(copy.deepcopy(module))
    for module in made:
        module.eval().requires_grad_(False)
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last)
    return made
