"""First layers of networks for images, and for observations of several parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from remuda.environments.packed_part import PackedPart
from remuda.policy.networks.layouts import (
    Convolution,
    ImageLayout,
    InputLayout,
    PartsLayout,
    Pixels,
    one_hot_offsets,
    scale,
    width,
)
from remuda.policy.networks.precision import Lowers
from remuda.policy.networks.program import Flatten, Parts, ReadPixels, Steps
from remuda.policy.networks.reading import Names, joined
from remuda.policy.networks.tensors import sent
from remuda.policy.spaces import ObservationSpec

_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Numbers of as many bytes: a row of a block is moved at once."""


@dataclass(frozen=True)
class Folding:
    """Folding of images and filters for a first convolution."""

    pixels: Pixels
    layer: Convolution

    @classmethod
    def of(cls, pixels: Pixels, layer: Convolution) -> Folding | None:
        """Folding for the images and the first convolution; None if blocks do not fit the filters."""
        return cls(pixels, layer) if layer.stride > 1 and layer.kernel % layer.stride == 0 else None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows and columns of blocks, and numbers per block. Leaves out pixels beyond the filters."""
        side, most = self.layer.stride, self.layer.kernel // self.layer.stride - 1
        rows, columns = ((size - self.layer.kernel) // side + 1 for size in (self.pixels.height, self.pixels.width))
        return rows + most, columns + most, side * side * self.pixels.channels

    def blocks(self, images: torch.Tensor) -> torch.Tensor:
        """Images uint8 or bool [n, …], as encoded -> uint8 [n, *shape]."""
        side = self.layer.stride
        rows, columns, numbers = self.shape
        seen, count = images.view(torch.uint8), len(images)
        if self.pixels.channels_last:
            read = seen[:, : rows * side, : columns * side].reshape(count, rows, side, columns, -1)
            return read.permute(0, 1, 3, 2, 4).reshape(count, rows, columns, numbers)
        read = seen[:, :, : rows * side, : columns * side].contiguous()
        word = _WORDS.get(side)
        if word is not None:
            words = (read if read.storage_offset() % side == 0 else read.clone()).view(word)
            moved = words.view(count, -1, rows, side, columns).permute(0, 2, 4, 1, 3).contiguous()
            return moved.view(torch.uint8).view(count, rows, columns, numbers)
        single = read.view(count, -1, rows, side, columns, side)
        return single.permute(0, 2, 4, 1, 3, 5).reshape(count, rows, columns, numbers)

    def filters(self, weight: torch.Tensor) -> torch.Tensor:
        """The filters [filters, channels, kernel, kernel] for blocks: [filters, numbers, kernel / stride, kernel /
        stride]."""
        side, more = self.layer.stride, self.layer.kernel // self.layer.stride
        split = weight.reshape(self.layer.filters, self.layer.channels, more, side, more, side)
        order = (0, 3, 5, 1, 2, 4) if self.pixels.channels_last else (0, 1, 3, 5, 2, 4)
        return split.permute(*order).reshape(self.layer.filters, -1, more, more)


_BYTES_AT_ONCE = 128 * 4 * 84 * 84 * 4
"""Size of the images of a call, as numbers. Larger tensors are allocated by the operating system each time: on a CPU
672 images of Atari take half as long in parts of 128, and in bfloat16 in parts of 256."""


class ConvolutionTrunk(nn.Sequential):
    """Convolutions, each followed by relu: an image uint8 or bool [n, …] -> float32 [n, layout.features].

    Images stay bytes up to here: a quarter of the memory and of the transfer.
    """

    def __init__(self, layout: ImageLayout) -> None:
        layers: list[nn.Module] = []
        for layer in layout.layers:
            layers += [nn.Conv2d(layer.channels, layer.filters, layer.kernel, layer.stride), nn.ReLU()]
        super().__init__(*layers)
        self._pixels = layout.pixels
        self._folding = Folding.of(layout.pixels, layout.layers[0]) if layout.layers else None
        self._compiled: Callable[[torch.Tensor, torch.dtype], torch.Tensor] | None = None

    def steps(self, names: Names) -> Steps:
        convolutions = joined(list(self), names)
        assert convolutions is not None
        return (ReadPixels(self._pixels.channels_last, self._pixels.scale), *convolutions, Flatten())

    def compile_learning(self, *, backend: str = "inductor") -> None:
        """Compile the convolutions for learning with torch.compile, forward and backward. Acting and traces do not
        change."""
        self._compiled = torch.compile(self._learn, backend=backend)

    def folded(self, images: torch.Tensor) -> torch.Tensor:
        """Convert images to the fastest form for learning, which `forward` also accepts. Useful for images that are
        read several times."""
        return images if self._folding is None else self._folding.blocks(images)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Read images of the environment. Under autocast, computes and returns the lower precision."""
        lower = torch.is_autocast_enabled(input.device.type)
        # a trace could not count the images
        if not (self.training and (lower or torch.is_grad_enabled() or self._is_folded(input))):
            return self._read(input)
        number = torch.get_autocast_dtype(input.device.type) if lower else torch.float32
        with torch.autocast(input.device.type, enabled=False):
            return self._learn(input, number) if self._compiled is None else self._compiled(input, number)

    def _read(self, images: torch.Tensor) -> torch.Tensor:
        floats = images.float()
        hidden = floats.permute(0, 3, 1, 2) if self._pixels.channels_last else floats  # a view
        for index, layer in enumerate(self):
            if isinstance(layer, nn.Conv2d):  # the first filters get the scale of the pixels: they are smaller
                weight = layer.weight if index else layer.weight * self._pixels.scale
                hidden = functional.conv2d(hidden, weight, layer.bias, layer.stride)
            else:
                hidden = layer(hidden)
        return hidden.flatten(1)

    def _learn(self, images: torch.Tensor, number: torch.dtype) -> torch.Tensor:
        """Compute the same with channels last, fastest for the backward pass: on a CPU 1.4 times as fast in float32,
        and 3 times in bfloat16, which represents all values of a byte exactly. The scale of pixels is multiplied into
        the first filters, which are smaller than the images."""
        layers = [layer for layer in self if isinstance(layer, nn.Conv2d)]
        weights = [layer.weight * (1.0 if index else self._pixels.scale) for index, layer in enumerate(layers)]
        strides = [layer.stride for layer in layers]
        if self._folding is not None:
            weights[0], strides[0] = self._folding.filters(weights[0]), (1, 1)
        weights = [weight.to(number, memory_format=torch.channels_last) for weight in weights]
        biases = [None if layer.bias is None else layer.bias.to(number) for layer in layers]
        bytes_each = images[:1].numel() * number.itemsize
        parts: list[torch.Tensor] = []
        at_once = max(1, _BYTES_AT_ONCE // max(1, bytes_each)) if images.device.type == "cpu" else len(images)
        for part in torch.split(images, max(1, at_once)):
            hidden = self._bytes_last(part).to(number).permute(0, 3, 1, 2)
            for weight, bias, stride in zip(weights, biases, strides, strict=True):
                hidden = torch.relu_(functional.conv2d(hidden, weight, bias, stride))
            parts.append(hidden.flatten(1))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _bytes_last(self, images: torch.Tensor) -> torch.Tensor:
        """[n, height, width, channels], folded if possible."""
        if self._is_folded(images):
            return images
        if self._folding is not None:
            return self._folding.blocks(images)
        return images if self._pixels.channels_last else images.permute(0, 2, 3, 1).contiguous()

    def _is_folded(self, images: torch.Tensor) -> bool:
        return self._folding is not None and images.shape[1:] == self._folding.shape


def as_channels(images: torch.Tensor, pixels: Pixels) -> torch.Tensor:
    """Images uint8 or bool [n, …], as encoded -> float32 [n, channels, height, width] between 0 and 1."""
    scaled = images.float() * pixels.scale
    return scaled.permute(0, 3, 1, 2) if pixels.channels_last else scaled  # a view: convolutions read it as it lies


class PartsTrunk(nn.Module):
    """Rows of bytes uint8 [n, bytes] -> float32 [n, layout.features]: vectors unchanged, images by convolutions."""

    def __init__(self, layout: PartsLayout) -> None:
        super().__init__()
        self._layout = layout
        self.images = nn.ModuleList(ConvolutionTrunk(image.layout) for image in layout.images)
        self._offsets = [torch.from_numpy(one_hot_offsets(part)) if part.counts else None for part in layout.vectors]

    def steps(self, names: Names) -> Steps:
        own = zip(self._layout.images, self.images, strict=True)
        read = [(image.index, trunk.steps(names)) for image, trunk in own if isinstance(trunk, ConvolutionTrunk)]
        return (Parts(tuple(read)),)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Under autocast the images are computed in the lower precision."""
        read = [
            part_vector(part, rows, offsets) for part, offsets in zip(self._layout.vectors, self._offsets, strict=True)
        ]
        for trunk, image in zip(self.images, self._layout.images, strict=True):
            read.append(trunk(part_image(image.part, image.observation, rows)).float())
        return torch.cat(read, dim=1)


def lowered(network: Lowers, trunk: nn.Module | None) -> AbstractContextManager[object]:
    """Context with the precision of a network's modules during learning, if `trunk` reads its observations.

    Only networks on images may use a lower precision. With several parts they do not: their layers also read vectors.
    """
    if network.products is None or not isinstance(trunk, ConvolutionTrunk) or not trunk.training:
        return nullcontext()
    return network.products.of_modules()


class CustomTrunk(nn.Module):
    """A user's trunk, with its initial weights."""


def trunk_of(layout: InputLayout) -> ConvolutionTrunk | PartsTrunk:
    """Make the trunk for a layout."""
    return PartsTrunk(layout) if isinstance(layout, PartsLayout) else ConvolutionTrunk(layout)


def part_vector(part: PackedPart, rows: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """Convert a part of rows of bytes to numbers, one-hot for counted parts: float32 [n, width]. `offsets`: cached
    result of one_hot_offsets."""
    entries = _entries(part, rows).reshape(-1, math.prod(part.shape))
    if not part.counts:
        return entries.float() * scale(part)
    offsets = torch.from_numpy(one_hot_offsets(part)) if offsets is None else offsets
    at = entries.long() + sent(offsets, rows.device)
    return torch.zeros(at.shape[0], width(part), device=rows.device).scatter(1, at, 1.0)


def _entries(part: PackedPart, rows: torch.Tensor) -> torch.Tensor:
    """Entries of a part, [n, *shape]; booleans stay bytes. In exported policies, rows hold numbers instead of bytes,
    from the part's offset on."""
    if rows.is_floating_point():
        return rows[:, part.offset : part.offset + math.prod(part.shape)].reshape(-1, *part.shape)
    own = rows[:, part.offset : part.offset + part.bytes]
    own = own.clone(memory_format=torch.contiguous_format)  # views of other numbers must begin at its start
    if part.dtype in ("uint8", "bool"):
        return own.view(-1, *part.shape)
    if is_tracing():  # TorchScript cannot view numbers as those of another type
        return from_bytes(own.view(-1, *part.shape, np.dtype(part.dtype).itemsize), np.dtype(part.dtype))
    return own.view(getattr(torch, part.dtype)).view(-1, *part.shape)


def is_tracing() -> bool:
    """True while torch traces a module for a file."""
    return cast("bool", getattr(torch.jit, "is_tracing")())  # noqa: B009  (torch does not declare it)


def from_bytes(parts: torch.Tensor, dtype: np.dtype[Any]) -> torch.Tensor:
    """Decode numbers from little-endian bytes, uint8 [n, …, bytes]: int64 for integers, float32 for float32."""
    bits = sum(parts[..., index].long() << (8 * index) for index in range(dtype.itemsize))
    assert isinstance(bits, torch.Tensor)
    size = 8 * dtype.itemsize
    if dtype.kind == "i" and size < 64:
        return bits - ((bits >> (size - 1)) << size)
    if dtype.kind != "f":
        return bits
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    least = exponent == 0
    whole = torch.where(least, fraction, fraction + 0x800000).double()
    power = torch.where(least, exponent + 1, exponent) - 150
    return (whole * torch.pow(2.0, power.double()) * (1 - 2 * (bits >> 31)).double()).float()


def part_image(part: PackedPart, observation: ObservationSpec, rows: torch.Tensor) -> torch.Tensor:
    """A part of rows of bytes as ObservationSpec.encode gives images: of three axes. `observation` describes the part
    alone."""
    pixels = _entries(part, rows)
    if len(part.shape) == 3:
        return pixels
    axes = observation.image_axes
    return pixels.permute(0, *(axis + 1 for axis in axes)).reshape(-1, *observation.image_shape)
