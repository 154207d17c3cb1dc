"""Images folded into blocks, for a first convolution whose stride is as wide as a block.

A convolution of 8 x 8 pixels and a stride of 4 over an image of 4 channels adds up the same products as one of 2 x 2
and a stride of 1 over blocks of 4 x 4 pixels, each with 64 numbers. That takes half as long: four channels fill a small
part of a vector register.
"""

# torch's annotations are partial: pyright does not know what these calls return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from dataclasses import dataclass

import torch

from remuda.policy.networks.images import Convolution, Pixels

_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Numbers of as many bytes: a row of a block is moved at once."""


@dataclass(frozen=True)
class Folding:
    """How images and filters of a first convolution are folded."""

    pixels: Pixels
    layer: Convolution

    @classmethod
    def of(cls, pixels: Pixels, layer: Convolution) -> Folding | None:
        """The folding for these images and their first convolution; None where blocks would not fit its filters."""
        return cls(pixels, layer) if layer.stride > 1 and layer.kernel % layer.stride == 0 else None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows and columns of blocks, and the numbers of each. Pixels that no filter reaches are left out."""
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
