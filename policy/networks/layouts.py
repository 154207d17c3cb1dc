"""Layout of networks for images, several parts, and recurrent cores. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.base import EncodedConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.packed_part import PackedPart
from remuda.policy.spaces import ObservationSpec

ATARI = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Filters, kernel and stride of each layer (Mnih et al. 2015)."""
SMALL = ((16, 3, 1),)
"""Of MinAtar's 10x10 pixels (Young and Tian 2019)."""
_LEAST_FOR_ATARI = 36
"""Least pixels per side for ATARI's layers."""


@dataclass(frozen=True)
class Pixels:
    """Format of encoded images (ObservationSpec.encode)."""

    channels: int
    height: int
    width: int
    channels_last: bool
    """Observations are [height, width, channels] instead of [channels, height, width]."""
    scale: float
    """Factor that maps pixels to 0 … 1."""

    @classmethod
    def of(cls, observation: ObservationSpec) -> Pixels | None:
        """Format of an image observation; None for other observations."""
        if not observation.is_image:
            return None
        last = observation.channels_last
        channels, height, width = (observation.image_shape[axis] for axis in ((2, 0, 1) if last else (0, 1, 2)))
        return cls(channels, height, width, last, 1.0 / (observation.high or 1.0))


@dataclass(frozen=True)
class Convolution:
    """A convolution layer: input channels, and filters of `kernel` x `kernel` pixels at distance `stride`."""

    channels: int
    filters: int
    kernel: int
    stride: int


@dataclass(frozen=True)
class ImageLayout:
    """An image, its convolutions, and the size of their output."""

    pixels: Pixels
    layers: tuple[Convolution, ...]
    features: int
    """Numbers after the last layer, flattened as channels, height, width."""

    @classmethod
    def of(cls, observation: ObservationSpec, convolution: Sequence[tuple[int, int, int]] | None) -> ImageLayout | None:
        """Lay out the convolutions for an observation; None if it is not an image.

        Raises UnsupportedSpaceError if layers were requested without an image, or if the image is too small for them.
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


@dataclass(frozen=True)
class ImagePart:
    """A part read by convolutions."""

    index: int
    """Of the part among all."""
    part: PackedPart
    observation: ObservationSpec
    """The part as a separate observation."""
    layout: ImageLayout


@dataclass(frozen=True)
class PartsLayout:
    """Parts of a row of bytes. The features are the vectors in order, then the features of the images in order."""

    vectors: tuple[PackedPart, ...]
    images: tuple[ImagePart, ...]

    @classmethod
    def of(cls, observation: ObservationSpec, convolution: Sequence[tuple[int, int, int]] | None) -> PartsLayout:
        """Lay out an observation with parts; all images have the same `convolution`s. Raises UnsupportedSpaceError."""
        vectors: list[PackedPart] = []
        images: list[ImagePart] = []
        for index, part in enumerate(observation.parts):
            own = image_of(part)
            layout = None if own is None else ImageLayout.of(own, convolution)
            if own is None or layout is None:
                vectors.append(part)
            else:
                images.append(ImagePart(index, part, own, layout))
        if convolution is not None and not images:
            raise UnsupportedSpaceError("policy.convolution reads images, and no part of the observations is one")
        return cls(tuple(vectors), tuple(images))

    @property
    def features(self) -> int:
        """Number of inputs of the next layers."""
        return sum(map(width, self.vectors)) + sum(image.layout.features for image in self.images)


def image_of(part: PackedPart) -> ObservationSpec | None:
    """Describe an image part as an observation of its own. Return None for other parts."""
    own = ObservationSpec(part.shape, part.dtype, part.low, part.high)
    return own if own.is_image and not part.counts else None


InputLayout = ImageLayout | PartsLayout
"""Layout of observations that are not a plain vector."""


def input_layout(
    observation: ObservationSpec, convolution: Sequence[tuple[int, int, int]] | None
) -> InputLayout | None:
    """Lay out an observation; None for a vector. Raises UnsupportedSpaceError, as ImageLayout.of does."""
    if observation.parts:
        return PartsLayout.of(observation, convolution)
    return ImageLayout.of(observation, convolution)


def features_of(observation: ObservationSpec, layout: InputLayout | None) -> int:
    """Number of inputs of the first fully connected layer."""
    return observation.features if layout is None else layout.features


def width(part: PackedPart) -> int:
    """Number of inputs for a vector; one-hot for counted parts."""
    return sum(part.counts) if part.counts else int(np.prod(part.shape, dtype=np.int64))


def scale(part: PackedPart) -> float:
    """Factor that maps bytes to 0 … 1; 1 for other numbers."""
    return 1.0 / (part.high or 1.0) if part.dtype == "uint8" else 1.0


def one_hot_offsets(part: PackedPart) -> NDArray[np.int64]:
    """Offsets from the entries of a counted part to indices among the `width` numbers of the part."""
    first = np.concatenate(([0], np.cumsum(part.counts)[:-1]))
    return first - np.array(part.starts, np.int64)


def vector_of(part: PackedPart, rows: np.ndarray) -> NDArray[np.float32]:
    """Encode a vector part for a network: rows uint8 [n, bytes] -> float32 [n, width]."""
    entries = part.of(rows).reshape(len(rows), -1)
    if not part.counts:
        numbers: NDArray[np.float32] = entries.astype(np.float32)
        return numbers if scale(part) == 1.0 else numbers * np.float32(scale(part))
    encoded = np.zeros((len(rows), width(part)), np.float32)
    encoded[np.arange(len(rows))[:, None], entries + one_hot_offsets(part)] = 1.0
    return encoded


def flat(observation: ObservationSpec, observations: np.ndarray) -> np.ndarray:
    """Encode observations [n, …] as one vector each: float32 [n, features]. With several parts, without images, the
    vectors of all parts are concatenated."""
    if not observation.parts:
        return observation.encode(observations)
    return np.concatenate([vector_of(part, observations) for part in observation.parts], axis=1)


def require_readable(config: EncodedConfig, observation: ObservationSpec) -> None:
    """Raise UnsupportedSpaceError where Remuda's own layers are to read observations, and cannot."""
    if not config.reads_by_module:
        features_of(observation, input_layout(observation, config.convolution))


def has_images(layout: InputLayout | None) -> bool:
    """True if convolutions read a part of the observation."""
    return layout is not None and (isinstance(layout, ImageLayout) or bool(layout.images))


def units(hidden: tuple[int, ...] | None, layout: InputLayout | None, *, default: tuple[int, ...]) -> tuple[int, ...]:
    """Units of the hidden layers: `hidden`, or by default one wide layer for images, and `default` otherwise."""
    if hidden is not None:
        return hidden
    return (512,) if has_images(layout) else default


CoreKind = Literal["lstm", "gru"]
"""Long short-term memory (Hochreiter and Schmidhuber 1997) or gated recurrent unit (Cho et al. 2014)."""
GATES = {"lstm": 4, "gru": 3}
"""Gates per unit of a core: rows in its weights."""
CORE, HEAD = "core.", "head."
"""Prefixes of two parts in a network's state."""


@dataclass(frozen=True)
class RecurrentLayout:
    """Layout of a recurrent network: an encoder or convolutions (for images), hidden layers, and the core."""

    numbers: int
    """Numbers per normalised observation."""
    hidden: tuple[int, ...]
    """Units of the layers between observation and core, at least one layer. The activation follows every layer."""
    activation: Literal["tanh", "relu"]
    core: CoreKind
    units: int
    """Units of the core: inputs of the head."""
    normalizes: bool = False
    """True if observations, which are not images, are scaled to running mean 0 and standard deviation 1 first."""
    layer_norm: bool = False
    """True if each hidden layer is normalised before its activation (Ba et al. 2016)."""

    @property
    def state_size(self) -> int:
        """Numbers carried from one observation to the next. For an LSTM: outputs, then cells."""
        return 2 * self.units if self.core == "lstm" else self.units

    @property
    def encoded(self) -> int:
        """Number of inputs of the core."""
        return self.hidden[-1]

    @property
    def remembered(self) -> ObservationSpec:
        """Description of the core's outputs for the head: observations of a Box."""
        return ObservationSpec((self.units,), "float32")


def begins_of(valid: np.ndarray) -> np.ndarray:
    """Mark the observations [B, T + 1] that begin an episode, given `valid` [B, T] (False for resets). The state
    contains the time before the first observation."""
    begins = np.zeros((valid.shape[0], valid.shape[1] + 1), np.bool_)
    begins[:, 1:] = ~valid
    return begins
