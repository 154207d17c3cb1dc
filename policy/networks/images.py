"""How images become numbers: which observations are images, and the convolutions that read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remuda.environments.unsupported import UnsupportedSpaceError
from remuda.policy.spaces import ObservationSpec

ATARI = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Filters, kernel and stride of each layer (Mnih et al. 2015)."""
SMALL = ((16, 3, 1),)
"""Of MinAtar's 10x10 pixels (Young and Tian 2019)."""
_LEAST_FOR_ATARI = 36
"""The least number of pixels per side for which ATARI's layers leave at least one."""


@dataclass(frozen=True)
class Pixels:
    """What images look like, as ObservationSpec.encode gives them."""

    channels: int
    height: int
    width: int
    channels_last: bool
    """Observations are [height, width, channels] instead of [channels, height, width]."""
    scale: float
    """The factor that brings pixels between 0 and 1."""

    @classmethod
    def of(cls, observation: ObservationSpec) -> Pixels | None:
        """Those of an observation; None if it is no image."""
        if not observation.is_image:
            return None
        last = observation.channels_last
        channels, height, width = (observation.image_shape[axis] for axis in ((2, 0, 1) if last else (0, 1, 2)))
        return cls(channels, height, width, last, 1.0 / (observation.high or 1.0))


@dataclass(frozen=True)
class Convolution:
    """One layer: its image's channels, and filters of `kernel` x `kernel` pixels, `stride` apart."""

    channels: int
    filters: int
    kernel: int
    stride: int


@dataclass(frozen=True)
class ImageLayout:
    """An image, the convolutions that read it, and the size of their output."""

    pixels: Pixels
    layers: tuple[Convolution, ...]
    features: int
    """Numbers after the last layer, flattened as channels, height, width."""

    @classmethod
    def of(cls, observation: ObservationSpec, convolution: Sequence[tuple[int, int, int]] | None) -> ImageLayout | None:
        """Lay out the convolutions for an observation; None if it is no image.

        Raises UnsupportedSpaceError if it is none and layers were requested, or if it is too small for them.
        """
        pixels = Pixels.of(observation)
        if pixels is None:
            if convolution is not None:
                raise UnsupportedSpaceError(
                    "policy.convolution reads images (uint8 of two to four axes, boolean of three or four), and "
                    f"observations are "
                    f"{observation.dtype} of shape {observation.shape}: leave it out"
                )
            return None
        channels, sides = pixels.channels, [pixels.height, pixels.width]
        chosen = convolution or (ATARI if min(sides) >= _LEAST_FOR_ATARI else SMALL)
        layers: list[Convolution] = []
        for filters, kernel, stride in chosen:
            if kernel > min(sides):
                raise UnsupportedSpaceError(
                    f"images of shape {observation.shape} are too small: a convolution of {kernel}x{kernel} pixels "
                    f"finds {sides[0]}x{sides[1]}; set policy.convolution to smaller ones, or flatten the observations "
                    "(gymnasium.wrappers.FlattenObservation)"
                )
            layers.append(Convolution(channels, filters, kernel, stride))
            channels, sides = filters, [(side - kernel) // stride + 1 for side in sides]
        return cls(pixels, tuple(layers), channels * sides[0] * sides[1])
