"""Encoders for `policy.encoder`: functions that return a module from prepared observations to features float32 [n, k].

Prepared observations are numbers float32 [n, *shape]; images float32 in 0 … 1 [n, channels, height, width]; Discrete
spaces one-hot [n, values]; for Dict and Tuple spaces a dict of these, by the part's name. Acting policies compute
encoders by numpy, except transformers, several parts, and numbers of several axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from remuda.environments.errors import UnsupportedSpaceError
from remuda.policy.networks import program
from remuda.policy.networks.layouts import ImageLayout, Pixels
from remuda.policy.networks.reading import Names, joined
from remuda.policy.spaces import ObservationSpec

Parts = dict[str, torch.Tensor]
"""Prepared observations of several parts."""
_ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


_OF_IMAGE = 512
"""Features of an image among several parts."""


def perceptron(
    observation: ObservationSpec,
    *,
    hidden: Sequence[int] = (256, 256),
    activation: Literal["relu", "tanh", "elu", "silu", "gelu"] = "relu",
    layer_norm: bool = False,
) -> nn.Module:
    """Fully connected layers. Observations of any shape, also with several parts, are flattened to one row of numbers
    first.

    Args:
        observation: description of the observations.
        hidden: units of each layer. The last layer gives the features.
        activation: follows each layer.
        layer_norm: normalise each layer before its activation (Ba et al. 2016). Needed by large or long-trained
            networks with replay.
    """
    _require("activation", activation, _ACTIVATIONS)
    first, width = _rows(observation)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise((width, *hidden)):
        layers.append(_orthogonal(nn.Linear(inputs, outputs), math.sqrt(2)))
        layers += [nn.LayerNorm(outputs)] if layer_norm else []
        layers.append(_ACTIVATIONS[activation]())
    return nn.Sequential(*first, *layers)


def nature_cnn(observation: ObservationSpec, *, features: int = 512) -> nn.Module:
    """The convolutions of Mnih et al. (2015): 32 of 8x8 pixels, 64 of 4x4, 64 of 3x3, and a fully connected layer.
    Images of less than 36 pixels per side get one layer of 16 of 3x3 (Young and Tian 2019).

    Args:
        observation: an image.
        features: units of the last layer.
    """
    layout = ImageLayout.of(observation, None)
    if layout is None:
        raise _no_image(observation)
    layers: list[nn.Module] = []
    for layer in layout.layers:
        convolution = nn.Conv2d(layer.channels, layer.filters, layer.kernel, layer.stride)
        layers += [_orthogonal(convolution, math.sqrt(2)), nn.ReLU()]
    last = _orthogonal(nn.Linear(layout.features, features), math.sqrt(2))
    return nn.Sequential(*layers, nn.Flatten(), last, nn.ReLU())


def impala_resnet(
    observation: ObservationSpec,
    *,
    width: float = 1.0,
    features: int = 256,
    channels: Sequence[int] = (16, 32, 32),
    layer_norm: bool = False,
) -> nn.Module:
    """The deep network of Espeholt et al. (2018, figure 3): sections of a convolution, a max pool that halves the
    image, and two residual blocks of two convolutions; then a fully connected layer.

    Args:
        observation: an image.
        width: factor of the channels; with 2 and 4, Procgen and Atari need fewer steps (Cobbe et al. 2020).
        features: units of the last layer.
        channels: channels of each section.
        layer_norm: normalise the features before the last relu.
    """
    pixels = Pixels.of(observation)
    if pixels is None:
        raise _no_image(observation)
    before, sides = pixels.channels, (pixels.height, pixels.width)
    layers: list[nn.Module] = []
    for section in channels:
        filters = max(1, round(width * section))
        layers += [nn.Conv2d(before, filters, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [_block_of_convolutions(filters) for _ in range(2)]
        before, sides = filters, ((sides[0] + 1) // 2, (sides[1] + 1) // 2)
    norm = [nn.LayerNorm(features)] if layer_norm else []
    last = nn.Linear(before * sides[0] * sides[1], features)
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), last, *norm, nn.ReLU())


def simba(observation: ObservationSpec, *, width: int = 128, blocks: int = 1, expansion: int = 4) -> nn.Module:
    """The residual perceptron of Lee et al. (2025, SimBa): a linear layer, residual blocks of layer norm and two linear
    layers, and a last layer norm. For SAC the paper takes 1 block of 128 for the actor and 2 of 512 for critics. Its
    running normalisation of observations is `policy.normalize_observations`, in algorithms with this setting.

    Args:
        observation: numbers; other observations are flattened to one row first.
        width: number of features.
        blocks: number of residual blocks.
        expansion: inner width of a block, as a multiple of `width`.
    """
    first, inputs = _rows(observation)
    layers: list[nn.Module] = [_orthogonal(nn.Linear(inputs, width), 1.0)]
    for _ in range(blocks):
        inner = nn.Linear(width, expansion * width), nn.ReLU(), nn.Linear(expansion * width, width)
        for layer in (inner[0], inner[2]):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        layers.append(Residual(nn.LayerNorm(width), *inner))
    return nn.Sequential(*first, *layers, nn.LayerNorm(width))


def transformer(
    observation: ObservationSpec,
    *,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    pooling: Literal["mean", "class"] = "mean",
    positions: bool = True,
) -> nn.Module:
    """Layers of self-attention (Vaswani et al. 2017), with normalisation before each layer (Xiong et al. 2020).

    Tokens are the rows of a Box [tokens, numbers], such as stacked observations or entities, or the parts of a Dict or
    Tuple space, each brought to the common width by a separate linear layer. Raises UnsupportedSpaceError for other
    observations, and ValueError for invalid settings.

    Args:
        observation: numbers of two axes, or several parts.
        width: numbers per token, and features; divisible by `heads`.
        layers: number of layers.
        heads: heads of attention in every layer.
        pooling: the features are the mean of all tokens (`mean`), or an additional learned token (`class`).
        positions: add a learned vector per position. Without it, the order of the rows of a Box has no effect, as
            entities require.
    """
    _require("pooling", pooling, ("mean", "class"))
    if width % heads:
        raise ValueError(f"width = {width} is not divisible by heads = {heads}")
    tokens: nn.Module
    if observation.parts:
        tokens = _TokensOfParts(observation, width)
        count = len(observation.parts)
    elif observation.n is None and not observation.is_image and len(observation.shape) == 2:
        count, numbers = observation.shape
        tokens = nn.Linear(numbers, width)
    else:
        raise UnsupportedSpaceError(
            f"a transformer reads a Box of numbers [tokens, numbers], or several parts, and observations are "
            f"{_shown(observation)}: gymnasium.wrappers.FrameStackObservation makes tokens of the newest observations"
        )
    return Transformer(tokens, count, width, layers, heads, pooling, positions=positions)


def by_parts(
    observation: ObservationSpec, *, parts: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> nn.Module:
    """An encoder for each part of a Dict or Tuple space; the features of all parts are concatenated, in the order of
    the parts. Raises UnsupportedSpaceError for other spaces, and ValueError for unknown parts.

    Args:
        observation: an observation with several parts.
        parts: by the part's name, the name of its `encoder` in this module and the encoder's settings, for instance
            `{image: {encoder: impala_resnet, width: 2}}`. Without an entry, an image gets `nature_cnn`, and other
            parts stay numbers.
    """
    if not observation.parts:
        raise UnsupportedSpaceError(f"by_parts reads Dict and Tuple spaces, and observations are {_shown(observation)}")
    of_parts = observation.by_part
    if unknown := sorted(parts.keys() - of_parts.keys()):
        raise ValueError(f"parts: there is no {unknown[0]!r}; the observation has {', '.join(of_parts)}")
    return EncodedParts({name: _part_encoder(one, parts.get(name)) for name, one in of_parts.items()})


class Residual(nn.Sequential):
    """Successive modules with a residual connection: outputs are added to inputs (He et al. 2016)."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[n, …] -> the same shape."""
        change = input
        for module in self:
            change = module(change)
        return input + change

    def steps(self, names: Names) -> program.Steps | None:
        inner = joined(list(self), names)
        return None if inner is None else (program.Residual(inner),)


class EncodedParts(nn.Module):
    """Prepared observations of several parts -> the features of all encoders, concatenated."""

    def __init__(self, encoders: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._names = tuple(encoders)
        self.encoders = nn.ModuleList(encoders.values())  # names of parts may hold dots, those of modules not

    def forward(self, parts: Parts) -> torch.Tensor:
        """See the class."""
        read = zip(self._names, self.encoders, strict=True)
        return torch.cat([encoder(parts[name]) for name, encoder in read], dim=1)


class Attention(nn.Module):
    """Self-attention of several heads: [n, tokens, width] -> the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.read, self.write = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """See the class."""
        each = self.read(tokens).unflatten(2, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = each.unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value)
        written: torch.Tensor = self.write(seen.transpose(1, 2).flatten(2))
        return written


class Transformer(nn.Module):
    """Prepared observations -> tokens [n, tokens, width] -> features [n, width]."""

    def __init__(
        self,
        tokens: nn.Module,
        count: int,
        width: int,
        layers: int,
        heads: int,
        pooling: Literal["mean", "class"],
        *,
        positions: bool,
    ) -> None:
        """`tokens` makes `count` tokens of an observation; for the rest see `transformer`."""
        super().__init__()
        self.tokens = tokens
        self.positions = nn.Parameter(0.02 * torch.randn(count, width)) if positions else None
        self.pooled = nn.Parameter(0.02 * torch.randn(width)) if pooling == "class" else None
        self.layers = nn.Sequential()
        for _ in range(layers):
            feeds = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            self.layers.append(Residual(nn.LayerNorm(width), Attention(width, heads)))
            self.layers.append(Residual(nn.LayerNorm(width), *feeds))
        self.norm = nn.LayerNorm(width)

    def forward(self, prepared: torch.Tensor | Parts) -> torch.Tensor:
        """See the class."""
        tokens: torch.Tensor = self.tokens(prepared)
        if self.positions is not None:
            tokens = tokens + self.positions
        if self.pooled is not None:
            tokens = torch.cat((self.pooled.expand(len(tokens), 1, -1), tokens), dim=1)
        tokens = self.layers(tokens)
        features: torch.Tensor = self.norm(tokens.mean(1) if self.pooled is None else tokens[:, 0])
        return features


class _Row(nn.Module):
    """A part as one row: [n, *shape] -> [n, numbers]. nn.Flatten refuses a part that is a single number, [n]."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self._numbers = numbers

    def forward(self, part: torch.Tensor) -> torch.Tensor:
        return part.reshape(-1, self._numbers)


class _TokensOfParts(nn.Module):
    """A token per part: dict -> [n, parts, width]."""

    def __init__(self, observation: ObservationSpec, width: int) -> None:
        super().__init__()
        rows = {name: _row_of_part(part) for name, part in observation.by_part.items()}
        self._names = tuple(rows)
        self.encoders = nn.ModuleList(nn.Sequential(row, nn.Linear(numbers, width)) for row, numbers in rows.values())

    def forward(self, parts: Parts) -> torch.Tensor:
        read = zip(self._names, self.encoders, strict=True)
        return torch.stack([encoder(parts[name]) for name, encoder in read], dim=1)


ENCODERS: Mapping[str, Callable[..., nn.Module]] = {
    function.__name__: function for function in (perceptron, nature_cnn, impala_resnet, simba, transformer)
}
"""Encoders for `by_parts`, by name."""


def _part_encoder(part: ObservationSpec, settings: Mapping[str, Any] | None) -> nn.Module:
    if settings is None:
        return _row_of_part(part)[0]
    given = dict(settings)
    name: object = given.pop("encoder", None)
    _require("the `encoder` of a part", name, ENCODERS)
    return ENCODERS[str(name)](part, **given)


def _rows(observation: ObservationSpec) -> tuple[list[nn.Module], int]:
    """Modules to flatten a prepared observation to a row, and the length of the row."""
    if observation.parts:
        rows = {name: _row_of_part(part) for name, part in observation.by_part.items()}
        encoders = {name: encoder for name, (encoder, _) in rows.items()}
        return [EncodedParts(encoders)], sum(numbers for _, numbers in rows.values())
    is_row = observation.n is not None or len(observation.shape) == 1
    return [] if is_row else [nn.Flatten()], observation.features


def _row_of_part(part: ObservationSpec) -> tuple[nn.Module, int]:
    """Module from a part to a row, and the length of the row. Convolutions read images."""
    if part.is_image:
        return nature_cnn(part, features=_OF_IMAGE), _OF_IMAGE
    return _Row(part.features), part.features


def _no_image(observation: ObservationSpec) -> UnsupportedSpaceError:
    return UnsupportedSpaceError(f"convolutions read images, and observations are {_shown(observation)}")


def _require(setting: str, given: object, names: Collection[str]) -> None:
    if given not in names:
        raise ValueError(f"{setting} must be one of {', '.join(names)}, and is {given!r}")


def _shown(observation: ObservationSpec) -> str:
    if observation.parts:
        return f"of several parts ({', '.join(part.name for part in observation.parts)}): take by_parts"
    if observation.n is not None:
        return f"{observation.n} values of a Discrete space"
    return f"{observation.dtype} of shape {observation.shape}"


def _block_of_convolutions(channels: int) -> Residual:
    first, second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
    return Residual(nn.ReLU(), first, nn.ReLU(), second)


def _orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> nn.Module:
    """Begin orthogonal (Saxe et al. 2014), with biases of 0."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
